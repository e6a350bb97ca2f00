"""Print the test likelihood of VIMCO against training time, and draw the validation bound against it.

    python scripts/time_to_quality.py docs/results bench.json docs/images/time-to-quality.svg

Times are updates times the milliseconds of one update, which `python -m benchmarks --only update steps` measures on a
quiet machine: the runs themselves may have shared theirs.
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

from vimco.runs.curve import COLOUR_OF_K
from vimco.runs.directory import Run
from vimco.runs.figures import figure_bytes
from vimco.studies.paper.protocol import generative
from vimco.studies.results import collected, on_protocol

SAMPLES = (2, 5, 10, 50)


def runs_of(runs: list[Run], K: int) -> list[Run]:
    """Return the runs of VIMCO with K samples at the paper's best rate, 1e-3; the longest is the last."""
    (cell,) = generative("vimco", K)
    kept = [run for run in on_protocol(runs, cell) if run.config.learning_rate == 1e-3]
    return sorted(kept, key=lambda run: run.updates)


def main(folder: Path, bench: Path, picture: Path) -> None:
    """Print a table in Markdown, and write the picture."""
    records = json.loads(bench.read_text())
    own = {r["K"]: r["ms"] for r in records if (r["kind"], r["task"]) == ("update", "generative")}
    plain = {r["K"]: r["plain_ms"] for r in records if r.get("step") == "a whole update"}
    runs, _ = collected([folder])
    figure = Figure(figsize=(5.5, 3.4), layout="constrained")
    axes = figure.subplots()
    print("| K | updates | minutes here | minutes in plain JAX | test NLL, raw | test NLL, averaged |")
    print("|---" * 6 + "|")
    for K in SAMPLES:
        of_K = runs_of(runs, K)
        for run in of_K:
            for updates in sorted({*run.stages, run.updates}):
                values = [run.evaluation(1000, weights, updates) for weights in ("best", "best-average")]
                words = [f"{v['negative_log_likelihood']:.2f}" if v else "–" for v in values]
                minutes = [f"{updates * ms[K] / 60_000:.1f}" for ms in (own, plain)]
                print(f"| {K} | {updates:,} | " + " | ".join((*minutes, *words)) + " |")
        points = of_K[-1].curve("average_validation_bound") or of_K[-1].curve("validation_bound")
        axes.plot(
            [update * own[K] / 60_000 for update, _ in points],
            [bound for _, bound in points],
            color=COLOUR_OF_K[K],
            label=f"K = {K}",
        )
    axes.set(
        xscale="log", xlabel="minutes of training on two cores", ylabel="validation bound (nats)", ylim=(-125, None)
    )
    axes.xaxis.set_major_formatter("{x:g}")  # without mathematical text, which our figures do not parse
    axes.legend()
    picture.write_bytes(figure_bytes(figure, "svg"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
