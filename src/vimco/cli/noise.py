"""The command `vimco noise`: parse, call, print."""

import json
from dataclasses import dataclass

from vimco.cli.options import OneRun, Parameters, Plugin
from vimco.cli.terminal import note, out, print_table
from vimco.errors import UsageError
from vimco.runs import directory
from vimco.runs.config import MAX_INTEGER
from vimco.runs.noise import noise_records
from vimco.runs.store import with_null


@dataclass(frozen=True)
class Noise:
    """Measure how noisy the gradients of the estimators are at the parameters of a run.

    All estimators have the same batch and the same draws. The signal-to-noise ratio is the norm of the mean gradient,
    divided by the square root of its variance: at 1, one update has as much signal as noise.
    """

    run: OneRun
    estimators: tuple[str, ...] = ()
    """Names of estimators, each with its options after commas, such as rws,centred=true. By default all that the model
    takes and that have no state of their own."""
    num_samples: int | None = None
    """K, the number of samples; by default the run's own."""
    draws: int = 200
    """Gradients from which the moments are estimated."""
    weights: Parameters = "best"
    json: bool = False
    """Print JSON instead of a table."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Measure, keep the numbers in the run's summary, and print a table."""
        if self.num_samples is not None and not 1 <= self.num_samples <= MAX_INTEGER:
            raise UsageError(f"--num-samples must be positive, and at most {MAX_INTEGER:,}; got {self.num_samples}.")
        if not 2 <= self.draws <= MAX_INTEGER:
            raise UsageError(f"--draws must be at least 2, and at most {MAX_INTEGER:,}; got {self.draws}.")
        run = directory.load(self.run)
        options = {"num_samples": self.num_samples, "draws": self.draws, "weights": self.weights}
        records = list(noise_records(run, self.estimators, **options))  # type: ignore[arg-type]
        problem = None
        try:
            run.record_noise(records)
        except UsageError as error:  # print the result even if the directory cannot be written
            problem = f"The numbers are not kept. {error}"
        if self.json:
            out.print_json(json.dumps(list(map(with_null, records))), ensure_ascii=True)
        else:
            _print_table(run.path.name, records)
        if problem is not None:
            note(problem)


def _print_table(name: str, records: list[dict]) -> None:
    first = records[0]
    out.print(
        f"{name}, {first['weights']} weights, update {first['update']:,}, K = {first['num_samples']}: bound "
        f"{first['bound']:.2f}, effective sample size {first['effective_sample_size']:.2f}, {first['draws']} draws"
    )
    parts = [part for part in ("proposal", "model") if f"{part}_snr" in first]
    headings = [f"{part}'s {what}" for part in parts for what in ("signal to noise", "variance")]
    columns = [f"{part}_{what}" for part in parts for what in ("snr", "variance")]
    rows = [(record["estimator"], *(f"{record[column]:.3g}" for column in columns)) for record in records]
    print_table(["estimator", *headings], rows)
