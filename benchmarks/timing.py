"""Timing on a shared machine: all candidates in alternation, several rounds, best and median."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple


class Timing(NamedTuple):
    """Milliseconds per repeat."""

    best: float
    median: float


def alternating(candidates: Mapping[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, Timing]:
    """Time callables in alternation, after one warm-up call each; return milliseconds per repeat."""
    for run, _ in candidates.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, (run, repeats) in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / repeats * 1e3)
    return {name: Timing(min(values), median(values)) for name, values in times.items()}
