"""A comparison of VIMCO with later estimators, on the paper's models, after equal updates and equal time."""

from collections.abc import Sequence

import numpy as np

from vimco.runs.config import RunConfig
from vimco.runs.curve import Curve
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.curves import distinct_curves, plot
from vimco.studies.document import MISSING, Block, Entry, Table, Text, anchor, minus, short_count
from vimco.studies.paper.protocol import at_every_rate
from vimco.studies.results import chosen, on_protocol, usual_length
from vimco.studies.study import Study, register_study
from vimco.studies.tables import equal_time, time_in_words

# Title: the estimator and its options. The last three do not take the prior as proposal, or are not meant for it.
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "VIMCO": ("vimco", ()),
    "arithmetic mean": ("vimco-arithmetic", ()),
    "OVIS, S = 5": ("ovis", ()),
    "RLOO (ELBO)": ("rloo", ()),
    "TVO": ("tvo-log-spaced", ()),
    "Rényi warm-up": ("renyi-warmup", ()),
    "f̂ = 0": ("vimco-leave-one-out", ()),
    "RWS": ("rws", ()),
    "RWS, centred": ("rws", ("centred=true",)),
}
OF_LEARNED_PROPOSALS = ("f̂ = 0", "RWS", "RWS, centred")
MEASURED = {  # whose gradients are measured, at the parameters that VIMCO has learned
    "naive": "naive",
    **{title: ",".join((name, *options)) for title, (name, options) in METHODS.items() if title != "Rényi warm-up"},
}
# Title: task, proposal, layers, K.
SETTINGS: dict[str, tuple[str, str, tuple[int, ...], int]] = {
    **{f"generative, K = {K}": ("generative", "learned", (200, 200, 200), K) for K in (2, 5, 10, 50)},
    **{
        f"bottom half, {proposal}, K = 20": ("structured", proposal, (200, 200), 20)
        for proposal in ("prior", "learned")
    },
}
EXPLANATION = (
    "The bound on the validation set, with the training K. Compared are the runs of the length that most methods were "
    "run for, and of these the best rate. The bound is given after the largest number of "
    "updates at which all runs of a table were validated, and after the time that the shortest of them took, on the "
    "straight line between two validations. Times are processor times from the runs' own metrics: the median of an "
    "update, which leaves compiling out, and no validations. Where a run of an earlier version has none, they are left "
    "out. "
    "RLOO and TVO ascend another objective, and RWS another one for its proposal."
)
OF_NOISE = (
    "Noise: all estimators at the same parameters, which VIMCO has learned, on the same batch and with the same draws. "
    "The ratio is the norm of the mean gradient, divided by the square root of its variance; below it is the variance "
    "as a multiple of VIMCO's (vimco noise). At 1 one update has as much signal as noise; below about a tenth the "
    "ratio itself is uncertain."
)
CAPTION = (
    "How far the bound on the validation set, with the training K, is ahead of VIMCO's after equally many updates, in "
    "the runs chosen by it."
)


def cells_of(model: str) -> dict[str, Cell]:
    """Return the cells of a model by the titles of their methods."""
    task, proposal, layers, K = SETTINGS[model]
    return {
        title: Cell(task, proposal, layers, estimator, K, options)
        for title, (estimator, options) in METHODS.items()
        if proposal == "learned" or title not in OF_LEARNED_PROPOSALS
    }


def runs() -> list[RunConfig]:
    """VIMCO and eight estimators since: whole images at K = 2, 5, 10, 50; bottom halves, two layers, both proposals."""
    return at_every_rate(cell for model in SETTINGS for cell in cells_of(model).values())


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """A table for each model that two or more methods were run on, with methods in rows; a panel of curves."""
    panels: dict[str, list[Curve]] = {}
    blocks: list[Block] = []
    for model in SETTINGS:
        best = _compared(found, cells_of(model))
        bounds = {title: dict(best[title].curve("validation_bound")) if title in best else {} for title in METHODS}
        ahead = {
            title: [
                (update, bound - bounds["VIMCO"][update]) for update, bound in each.items() if update in bounds["VIMCO"]
            ]
            for title, each in bounds.items()
        }
        panels[model] = distinct_curves(ahead, in_column=3)
        if len(best) > 1:
            blocks.append(_table(model, best))
        blocks += _noise(model, found)
    return [*blocks, Text(EXPLANATION), Text(OF_NOISE), plot(study.name, panels, "nats ahead of VIMCO", CAPTION)]


def _compared(found: Sequence[Run], cells: dict[str, Cell]) -> dict[str, Run]:
    """Return the run of each method with the rate that was best at the length that most methods were run for, or else
    the best of any length.

    A run of that length is preferred to a longer one at the same rate: longer runs of single methods were often made
    elsewhere or beside others, and their times mean nothing here.
    """
    by_title = {title: on_protocol(found, cell) for title, cell in cells.items()}
    common = usual_length(length for runs in by_title.values() for length in {run.updates for run in runs})
    compared = {}
    for title, runs in by_title.items():
        for best in (chosen(runs, cells[title], until=common) or chosen(runs, cells[title]))[:1]:
            usual = [run for run in runs if run.updates == common and _rate_and_seed(run) == _rate_and_seed(best)]
            compared[title] = (usual or [best])[0]
    return compared


def _rate_and_seed(run: Run) -> tuple[float, int]:
    return run.config.learning_rate, run.config.seed


def _table(model: str, best: dict[str, Run]) -> Table:
    """Return the bounds after equal updates, and after equal time if the processor's time of every run is known."""
    curves = {title: dict(run.curve("validation_bound")) for title, run in best.items()}
    common = max(set.intersection(*map(set, curves.values())), default=0)
    paces, seconds = equal_time(best)
    rows = []
    for title, run in best.items():
        curve = curves[title]
        row = [Entry(minus(curve[common])) if common in curve else MISSING]
        if seconds is not None:
            row += [_at(seconds, paces[title], curve), Entry(f"{1000 * paces[title]:.2f}")]
        rows.append((Entry(title, f"rate {run.config.learning_rate:g}", links_to=anchor(run.name)), *row))
    of_time = () if seconds is None else (f"after {time_in_words(seconds)}", "ms an update")
    headings = (model, f"after {short_count(common)} updates", *of_time)
    return Table(f"Validation bound in nats: {model}", headings, tuple(rows))


def _at(seconds: float, pace: float, curve: dict[int, float]) -> Entry:
    """Return the bound at a moment, on the straight line between two validations; none before the first."""
    moments = [update * pace for update in curve]
    if not moments or seconds < moments[0]:
        return MISSING
    return Entry(minus(float(np.interp(seconds, moments, list(curve.values())))))


def measured(cell: Cell) -> tuple[str, ...]:
    """Return the estimators whose gradients are measured in the runs of a cell: those of VIMCO alone."""
    if (cell.estimator, cell.estimator_options) != ("vimco", ()):
        return ()
    return tuple(
        name for title, name in MEASURED.items() if cell.proposal == "learned" or title not in OF_LEARNED_PROPOSALS
    )


def _noise(model: str, found: Sequence[Run]) -> list[Block]:
    """Return the table of the run of VIMCO whose gradients were measured most often, if there is one."""
    noise = [run.noise_of_training() for run in on_protocol(found, cells_of(model)["VIMCO"])]
    measured = max(noise, key=len, default=[])
    draws = {record["update"]: record["draws"] for record in measured if record["estimator"] == "vimco"}
    records = {(r["estimator"], r["update"]): r for r in measured if r["draws"] == draws.get(r["update"])}
    if not records:
        return []
    parts = [part for part in ("proposal", "model") if any(f"{part}_snr" in record for record in records.values())]
    columns = [(update, part) for update in sorted({update for _, update in records}) for part in parts]
    rows = [
        (Entry(title), *(_ratio(records, name, update, part) for update, part in columns))
        for title, name in MEASURED.items()
        if any(estimator == name for estimator, _ in records)
    ]
    headings = (model, *(f"{part}, after {short_count(update)}" for update, part in columns))
    return [Table(f"Signal-to-noise ratio of the gradient: {model}", headings, tuple(rows))]


def _ratio(records: dict[tuple[str, int], dict], name: str, update: int, part: str) -> Entry:
    record, reference = records.get((name, update), {}), records.get(("vimco", update), {})
    ratio, variance, of_vimco = (
        each.get(f"{part}_{what}") for each, what in ((record, "snr"), (record, "variance"), (reference, "variance"))
    )
    if ratio is None or variance is None or not of_vimco:
        return MISSING
    return Entry(f"{ratio:.3f}", f"variance × {variance / of_vimco:.3g}")


register_study(
    Study(
        "estimators",
        "Which estimator? Those since the paper beside VIMCO",
        "validation bound after equal updates and equal time, milliseconds an update, noise of gradients",
        runs,
        show,
        noise=measured,
    )
)
