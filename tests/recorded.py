"""Run directories as training leaves them, written without training."""

import functools
import json
import math
from pathlib import Path

import numpy as np

from vimco.runs.config import RunConfig
from vimco.runs.figures import figure_bytes, image_grid
from vimco.studies.study import run_name

ENVIRONMENT = {"python": "3.11", "vimco": "0.1.0", "jaxlib": "0.10.0", "cpu": "a processor", "threads": 1}


def recorded_run(
    folder: Path,
    config: RunConfig,
    *,
    name: str | None = None,
    bound: float = -100.0,
    signal: float = 2.0,
    likelihood: float | None = None,
    num_samples: int = 1000,
    is_finished: bool = True,
    average: float | None = None,
) -> Path:
    """Write a run whose validation bound rises to `bound`; `likelihood` and `average` are its evaluations."""
    path = folder / (name or run_name(config))
    path.mkdir(parents=True)
    data = {"name": Path(config.data).stem, "checksum": "0" * 64, "image_shape": [8, 8]}
    record = {"config": config.to_json(), "environment": ENVIRONMENT, "data": data}
    (path / "config.json").write_text(json.dumps(record))
    updates, lines = config.updates or 1000, []
    for i in range(1, 21):
        line = {
            "update": i * updates // 20,
            "train_bound": bound - 60 * math.exp(-i / 3),
            "signal_rms": signal * (1 + math.exp(-i / 5)),
            "updates_per_second": 100.0,
            "seconds": i * 5.0,
            "processor_seconds": i * 5.0,
        }
        if i % 2 == 0:
            line["validation_bound"] = bound - 60 * (math.exp(-i / 3) - math.exp(-20 / 3))
            if average is not None:
                line["average_validation_bound"] = line["validation_bound"] + 0.5
        lines.append(json.dumps(line) + "\n")
    (path / "metrics.jsonl").write_text("".join(lines))
    if not is_finished:
        return path
    evaluations = [
        {
            "split": "test",
            "weights": weights,
            "seed": 0,
            "update": updates,
            "num_samples": num_samples,
            "num_examples": 200,
            "negative_log_likelihood": value,
            "standard_error": 0.25,
            "monte_carlo_error": 0.01,
            "effective_sample_size": 7.5,
        }
        for weights, value in (("best", likelihood), ("best-average", average))
        if value is not None
    ]
    best = {"update": updates, "validation_bound": bound}
    summary = {"updates": updates, "minutes": 1.0, "best": best, "best_average": None, "note": ""}
    (path / "summary.json").write_text(json.dumps({**summary, "evaluations": evaluations}))
    (path / "samples.png").write_bytes(picture())
    return path


@functools.cache
def picture() -> bytes:
    """Return two rows of four checkered images."""
    rows = [(np.indices((4, 64)).sum(axis=0) + phase) % 3 / 2 for phase in range(2)]
    return figure_bytes(image_grid({"originals": rows[0], "completions 1": rows[1]}, (8, 8)))
