"""Print a table and write its records as JSON: milliseconds beside the matrix products alone."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.devices import device_records
from benchmarks.limits import numpy_products, products, with_gradients_of_samples, xla_products
from benchmarks.lookups import is_here, looked_up
from benchmarks.page import page_records
from benchmarks.plain import plain_updates, steps
from benchmarks.start import seconds_to_first_update
from benchmarks.subjects import evaluations, examples, is_possible, model, updates
from benchmarks.timing import Timing, alternating
from vimco.estimators import named_estimator
from vimco.parameters import partition
from vimco.runs.config import RunConfig
from vimco.training.evaluation import BLOCK, ROWS

TASKS = ("generative", "structured")
# One estimator of each cost, beside those that the paper compares; `--estimators` chooses others.
ESTIMATED = (
    *(
        "vimco",
        "naive",
        "vimco-arithmetic",
        "vimco-leave-one-out",
        "vimco-learned",
        "nvil",
        "rws",
        "rws-sleep",
        "rws-both",
    ),
    *("ovis", "rloo", "straight-through", "tang", "bbvi", "muprop", "local-expectations"),
)
OF_THE_PRIOR = ("vimco", "nvil", "straight-through", "tang", "bbvi", "muprop", "local-expectations")
# The largest ratios of those that need more of a model; that of `straight-through` includes its third product.
OTHER_LIMITS = {"bbvi": 1.5, "straight-through": 1.5, "tang": 1.5}
Part = Literal["update", "growth", "estimator", "evaluation", "memory", "steps", "start", "devices", "page", "lookups"]


@dataclass(frozen=True)
class Options:
    """Milliseconds per update and per evaluation, beside the matrix products alone."""

    output: Path = Path(os.environ.get("BENCH_OUTPUT", "bench.json"))
    """Where the records go."""
    rounds: int = 15
    """Rounds of the alternation; the best and the median are given."""
    only: tuple[Part, ...] = get_args(Part)
    """Which parts to run."""
    estimators: tuple[str, ...] = ESTIMATED
    """Names of the estimators that are timed beside VIMCO, where the task allows them."""


def repeats_for(K: int, batch: int, width: int) -> int:
    """Return the number of updates that take about 60 ms."""
    return max(2, round(300_000 / (K * batch * width + 100_000) * 20))


def beside(own: Timing, limit: Timing) -> dict[str, float]:
    """Return milliseconds, those of the limit, and their ratio, for the best rounds and the medians."""
    return {
        "ms": own.best,
        "floor_ms": limit.best,
        "ratio": own.best / limit.best,
        "median_ms": own.median,
        "median_floor_ms": limit.median,
        "median_ratio": own.median / limit.median,
    }


def update_record(kind: str, task: str, K: int, batch: int, width: int, rounds: int) -> dict[str, Any]:
    """Return the record of an update by VIMCO (by NVIL at K = 1, where VIMCO cannot be used)."""
    estimator = "vimco" if K > 1 else "nvil"
    repeats = repeats_for(K, batch, width)
    run, seconds_to_first = updates(task, K, batch, width, repeats, estimator)
    layers = products(task, K, batch, width)
    timings = alternating({"update": (run, repeats), "limit": (xla_products(layers, repeats), repeats)}, rounds)
    # NumPy is timed separately: its BLAS threads spin after a product and would slow down the next measurement.
    blas = alternating({"numpy": (numpy_products(layers, repeats), repeats)}, max(3, rounds // 3))
    return {
        "kind": kind,
        "task": task,
        "estimator": estimator,
        "K": K,
        "batch": batch,
        "width": width,
        **beside(timings["update"], timings["limit"]),
        "numpy_ms": blas["numpy"].best,
        "seconds_to_first_update": seconds_to_first,
    }


def evaluation_record(task: str, K: int, rounds: int) -> dict[str, Any]:
    """Return the record of an evaluation with K samples, per example."""
    size = ROWS // min(K, BLOCK)
    blocks = K // BLOCK
    every = products(task, BLOCK, size, 200)
    layers = [layer for layer in every if layer.rows == BLOCK * size]
    shared = [layer for layer in every if layer.rows == size]  # layers of the data alone, computed once for all blocks
    timings = alternating(
        {
            "evaluation": (evaluations(task, K, size), size),
            "limit": (xla_products(layers, blocks, gradients=False), size),
            "shared": (xla_products(shared, 1, gradients=False), size),
        },
        max(3, rounds // 3),
    )
    limit = Timing(*map(sum, zip(timings["limit"], timings["shared"], strict=True)))
    return {"kind": "evaluation", "task": task, "K": K, **beside(timings["evaluation"], limit)}


def estimator_records(task: str, K: int, names: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """Return the estimators that fit a task, beside VIMCO, with the ratio that each is to keep within.

    "products" are the multiplications of the update's matrix products, relative to VIMCO's, where gradients flow into
    the samples: with them the ratio cannot be less.
    """
    repeats = repeats_for(K, 24, 200)
    batch = examples(task, 24).batch(jnp.arange(24), jnp.result_type(float))
    names = tuple(name for name in names if name != "vimco" and is_possible(name, model(task, 200), batch, K))
    timings = alternating(
        {name: (updates(task, K, 24, 200, repeats, name)[0], repeats) for name in ("vimco", *names)}, rounds
    )
    attached = with_gradients_of_samples(task, K, 24, 200)
    return [
        {
            "kind": "estimator",
            "task": task,
            "K": K,
            "estimator": name,
            **beside(timing, timings["vimco"]),
            "products": attached if name == "straight-through" else 1.0,
            "limit": limit_of(name),
        }
        for name, timing in timings.items()
    ]


def limit_of(estimator: str) -> float | None:
    """Return the largest ratio to VIMCO that an estimator may have: 1.05 for signals of log-weights alone."""
    return OTHER_LIMITS.get(estimator, None if needs_more(estimator) else 1.05)


def needs_more(estimator: str) -> bool:
    """Return whether an estimator needs more than log-weights of the model, or learns a baseline."""
    built = named_estimator(estimator, jax.random.key(0), jnp.full(3, 0.5))
    return bool(built.needs) or bool(jax.tree.leaves(partition(built)[0]))


def plain_record(K: int, rounds: int) -> dict[str, Any]:
    """Return the record of the update beside a straightforward one in JAX."""
    repeats = repeats_for(K, 24, 200)
    run, _ = updates("generative", K, 24, 200, repeats)
    timings = alternating({"own": (run, repeats), "plain": (plain_updates(K, 24, 200, repeats), repeats)}, rounds)
    return step_record("a whole update", K, timings["plain"], timings["own"])


def lookup_record(K: int, rounds: int) -> dict[str, Any]:
    """Return the record of the update beside one whose products look up sums."""
    repeats = repeats_for(K, 24, 200)
    own, _ = updates("generative", K, 24, 200, repeats)
    lookups, _ = updates("generative", K, 24, 200, repeats, changed=looked_up)
    timings = alternating({"own": (own, repeats), "lookups": (lookups, repeats)}, rounds)
    xla, other = timings["own"], timings["lookups"]
    return {
        "kind": "lookups",
        "task": "generative",
        "K": K,
        "xla_ms": xla.best,
        "ms": other.best,
        "gain": xla.best / other.best,
        "median_gain": xla.median / other.median,
    }


def step_records(K: int, rounds: int) -> list[dict[str, Any]]:
    """Return the records of single kernels beside the plain code that they replace."""
    repeats = repeats_for(K, 24, 200)
    records = []
    for name, (plain, own) in steps(K, 24, repeats).items():
        timings = alternating({"own": (own, repeats), "plain": (plain, repeats)}, rounds)
        records.append(step_record(name, K, timings["plain"], timings["own"]))
    return records


def step_record(name: str, K: int, plain: Timing, own: Timing) -> dict[str, Any]:
    """Return the record of one kernel."""
    return {
        "kind": "step",
        "task": "generative",
        "step": name,
        "K": K,
        "ms": own.best,
        "plain_ms": plain.best,
        "gain": plain.best / own.best,
        "median_gain": plain.median / own.median,
    }


def memory_record(K: int, slice_size: int | None) -> dict[str, Any]:
    """Return the peak memory of a process that does two updates, and of one that only starts."""
    peak = [
        int(subprocess.run([sys.executable, "-m", "benchmarks.memory", *words], capture_output=True, check=True).stdout)
        for words in ([], [str(K), str(slice_size or 0)])
    ]
    return {
        "kind": "memory",
        "task": "generative",
        "K": K,
        "slice_size": slice_size,
        "start_mb": peak[0],
        "mb": peak[1],
    }


def start_record() -> dict[str, Any]:
    """Return the seconds from the command to its first update for the default run, without a compilation cache."""
    return {"kind": "start", "task": "generative", "K": RunConfig().num_samples, "seconds": seconds_to_first_update()}


def table(title: str, columns: tuple[str, ...], records: list[dict[str, Any]]) -> Table:
    """Return the records as a readable table."""
    result = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        result.add_column(name.replace("_", " "), justify="right")
    for record in records:
        values = (
            "–" if (v := record.get(c)) is None else f"{v:.2f}" if isinstance(v, float) else str(v) for c in columns
        )
        result.add_row(*values)
    return result


def main(options: Options) -> None:
    """Measure, print the tables, and write the records."""
    console = Console(width=120)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    console.print(f"jax {jax.__version__}, {platform.machine()}, {cores} cores; best of {options.rounds} rounds")
    records: list[dict[str, Any]] = []
    timed = ("task", "K", "batch", "width", "ms", "floor_ms", "ratio", "median_ratio", "numpy_ms")

    def show(title: str, columns: tuple[str, ...], new: list[dict[str, Any]]) -> None:
        records.extend(new)
        console.print(table(title, columns, new))
        console.print()

    if "update" in options.only:
        new = [update_record("update", t, K, 24, 200, options.rounds) for t in TASKS for K in (1, 2, 5, 10, 50)]
        show("One update, and its matrix products alone", (*timed, "seconds_to_first_update"), new)
    if "growth" in options.only:
        sizes = [(5, 96, 200), (5, 24, 400), (100, 24, 200), (500, 24, 200)]
        new = [update_record("growth", "generative", *size, options.rounds) for size in sizes]
        show("How it grows", timed, new)
    if "estimator" in options.only:
        columns = ("estimator", "K", "ms", "ratio", "median_ratio", "products", "limit")
        for task, chosen in (("generative", options.estimators), ("structured, prior", OF_THE_PRIOR)):
            names = tuple(name for name in chosen if name in options.estimators)
            new = estimator_records(task, 5, names, options.rounds)
            show(f"Estimators, relative to VIMCO: {task}", columns, new)
    if "evaluation" in options.only:
        new = [evaluation_record(task, 1000, options.rounds) for task in TASKS]
        show("Evaluation, per example", ("task", "K", "ms", "floor_ms", "ratio", "median_ratio"), new)
    if "memory" in options.only:
        new = [memory_record(K, s) for K, s in ((5, None), (50, None), (5000, 100))]
        show("Peak memory (MB)", ("K", "slice_size", "start_mb", "mb"), new)
    if "steps" in options.only:
        new = [plain_record(K, options.rounds) for K in (2, 5, 10, 50)]
        new += [record for K in (5, 50) for record in step_records(K, options.rounds)]
        show("What was won over plain JAX", ("step", "K", "plain_ms", "ms", "gain", "median_gain"), new)
    if "start" in options.only:
        show("From the command to its first update (s)", ("task", "K", "seconds"), [start_record()])
    if "devices" in options.only:
        rounds = min(options.rounds, 6)  # each of seconds, at the largest size
        new = [record for size in ((5, 24), (50, 24), (50, 192)) for record in device_records(*size, rounds)]
        columns = ("K", "batch", "layout", "cpu_ms", "ceiling", "ms", "exchange_cpu_ms", "exchange_ms")
        title = "Several devices: CPU time of a process, how much faster it could be at best, and the exchange's share"
        show(title, (*columns, "exchange_share", "limit"), new)
    if "page" in options.only:
        columns = ("layers", "pictures", "slowdown", "movements", "median_ms", "worst_ms", "limit")
        title = "The digit page in Chromium: from a movement of the pen to twelve pictures"
        show(title if (new := page_records()) else "The digit page needs Chromium, which is not here", columns, new)
    if "lookups" in options.only:
        new = [lookup_record(K, options.rounds) for K in (2, 5, 10, 50)] if is_here() else []
        title = "An update by XLA's products, and one whose products look up sums"
        columns = ("K", "xla_ms", "ms", "gain", "median_gain")
        show(title if new else "Lookups need g++ and 512-bit vectors, which are not here", columns, new)
    options.output.write_text(json.dumps(records, indent=2) + "\n")
    console.print(f"Records: {options.output}")


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks"))
