"""The noise of each estimator's gradient on the paper's network, at three moments of one training by VIMCO.

    python -m benchmarks.estimators --num-samples 5 --updates 500 2000 8000

All estimators are measured at the same parameters and on the same batch, with the same draws. The signal-to-noise ratio
is ‖mean‖ / √variance over all parameters of a part; one draw is the gradient of one update.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.subjects import is_offered
from vimco.data import load_dataset
from vimco.estimators import ESTIMATORS, named_estimator
from vimco.runs.config import RunConfig
from vimco.runs.experiment import Experiment
from vimco.training.diagnostics import gradient_statistics


@dataclass(frozen=True)
class Options:
    """Variance and signal-to-noise ratio of every estimator at three moments of training."""

    task: str = "generative"
    """`generative` or `structured`."""
    proposal: str = "learned"
    """`learned` or `prior` (structured task only)."""
    layers: tuple[int, ...] = (200, 200, 200)
    """Widths of the latent layers."""
    num_samples: tuple[int, ...] = (2, 5, 10, 50)
    """K."""
    updates: tuple[int, ...] = (500, 2000, 8000)
    """The moments, counted in updates by VIMCO."""
    draws: int = 200
    """Sets of K samples from which the moments of a gradient are estimated."""
    only: tuple[str, ...] = ()
    """Names of estimators, each with its options after commas; all that the model offers samples for unless given."""
    output: Path = Path(os.environ.get("BENCH_OUTPUT", "estimators.json"))
    """Where the records go."""


def records(options: Options, K: int) -> list[dict[str, Any]]:
    """Return one record for each moment and estimator, with K samples."""
    config = RunConfig(task=options.task, proposal=options.proposal, layers=options.layers, num_samples=K)  # type: ignore[arg-type]
    experiment = Experiment(config, load_dataset(config.data))
    trainer, examples = experiment.trainer, experiment.examples("train")
    state, done, found = experiment.initial_state(), 0, []
    batch = examples.batch(jnp.arange(trainer.batch_size), jnp.result_type(float))
    names = options.only or [name for name in ESTIMATORS if is_offered(name, state.model)]
    for moment in options.updates:
        while done < moment:
            epoch, place = divmod(done, trainer.updates_per_epoch(examples))
            number = min(moment - done, trainer.updates_per_epoch(examples) - place)
            state = trainer.advanced(state, examples, trainer.epoch_order(examples, epoch), number)
            done += number
        for name in names:
            name_alone, *words = name.split(",")
            mean = jnp.asarray(experiment.dataset.training_mean, jnp.result_type(float))
            estimator = named_estimator(name_alone, jax.random.key(0), mean, words)
            statistics = gradient_statistics(state.model, estimator, jax.random.key(1), batch, K, options.draws)
            of_model = statistics.of(lambda model: (model.prior, model.likelihood))
            record = {"estimator": name, "K": K, "update": moment, "bound": float(statistics.bound)}
            record["effective_sample_size"] = float(statistics.effective_sample_size)
            parts = {"model": of_model}
            if state.model.proposal is not None:
                parts["proposal"] = statistics.of(lambda model: model.proposal)
            for part, values in parts.items():
                record[f"{part}_variance"] = float(values.total_variance)
                # The square of the mean of n draws is too large by 1/n of the variance.
                squared = float(values.total_signal_to_noise) ** 2 - 1 / options.draws
                record[f"{part}_snr"] = max(squared, 0.0) ** 0.5
            found.append(record)
    return found


def main(options: Options) -> None:
    """Measure, print the table, and write the records."""
    console = Console(width=120)
    found: list[dict[str, Any]] = []
    for K in options.num_samples:
        new = records(options, K)
        found += new
        columns = list(new[0])
        table = Table(title=f"K = {K}", title_justify="left", box=None, pad_edge=False)
        for column in columns:
            table.add_column(column.replace("_", " "), justify="right")
        for record in new:
            table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in record.values()))
        console.print(table)
        options.output.write_text(json.dumps(found, indent=2) + "\n")
    console.print(f"Records: {options.output}")


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.estimators"))
