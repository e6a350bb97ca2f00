"""Hard attention: RAM (Mnih et al., 2014), WS-RAM (Ba et al., 2015), Tang & Salakhutdinov's EM, and VIMCO."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.claims import Claim, by_curves, falls
from vimco.studies.curves import Points, distinct_curves, picture_of, plot
from vimco.studies.document import MISSING, Block, Entry, Table, Text, anchor, short_count
from vimco.studies.paper.protocol import at_every_rate
from vimco.studies.results import chosen, last_evaluation
from vimco.studies.study import Study, register_study
from vimco.studies.tables import equal_time, time_in_words

# Title: the estimator, its options, the proposal, and K.
METHODS: dict[str, tuple[str, tuple[str, ...], str, int]] = {
    "RAM": ("ram", (), "prior", 1),
    "WS-RAM": ("rws", ("centred=true",), "learned", 5),
    "Tang, centred": ("tang", ("centred=true",), "prior", 5),
    "VIMCO": ("vimco", (), "prior", 5),
    "VIMCO, learned": ("vimco", (), "learned", 5),
}
NUM_SAMPLES = 100
EXPLANATION = (
    "Images of 60 x 60 pixels, of which a glimpse shows 12 x 12 at three scales; six glimpses at places of a grid of "
    "7 x 7, a core of 128 units. RAM learns from one path at a time, and its policy from the right answers alone; the "
    "others from five paths. WS-RAM and the last row draw them from a network that sees the label; error and log-loss "
    "are always those of the mean over 20 paths of the policy, which does not. Times are processor times from "
    "the runs' own metrics: the median of an update, which leaves compiling out, and no validations."
)
REMARK = (
    "Mnih et al. report an error of 5.23 % on cluttered images of 60 x 60 pixels with eight glimpses. Their digits are "
    "grey, those here binarized; their places are continuous, their core has 256 units, and their training was far "
    "longer, so the numbers here are no attempt to repeat theirs. One seed: small differences are no ranking."
)
CAPTION = "Labels that are wrong, and log-loss, on the validation set, against updates."
OF_PLACES = (
    "Test images on top; below them one path of the policy, glimpse by glimpse. What the glimpse shows is lighter, and "
    "lightest at the finest scale."
)


def cell(method: str) -> Cell:
    """Return the cell of a method."""
    estimator, options, proposal, K = METHODS[method]
    return Cell("attention", proposal, RunConfig().layers, estimator, K, options)


def runs() -> list[RunConfig]:
    """Labels of digits at random places, from six glimpses: RAM at K = 1, WS-RAM, Tang and VIMCO at K = 5."""
    return at_every_rate(map(cell, METHODS))


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Return errors after equal updates and equal time, on the test set, curves of them, and where a model looks."""
    best = {title: run for title in METHODS for run in chosen(found, cell(title))[:1]}
    if not best:
        return [Text("In training: no validation yet.")]
    errors = {method: best[method].curve("validation_error") if method in best else [] for method in METHODS}
    log_losses = {method: _log_losses(best[method]) if method in best else [] for method in METHODS}
    in_percent = {method: [(update, 100 * error) for update, error in points] for method, points in errors.items()}
    panels = {"labels wrong (%)": distinct_curves(in_percent), "log-loss (nats)": distinct_curves(log_losses)}
    looking = next(best[method] for method in reversed(METHODS) if method in best)
    return [
        _course(best),
        _outcome(best),
        Text(EXPLANATION),
        Text(REMARK),
        plot(study.name, panels, "validation", CAPTION, is_logarithmic=True),
        picture_of(looking, f"{study.name}-places", OF_PLACES),
    ]


def _course(best: dict[str, Run]) -> Table:
    """Return validation errors and log-losses after equal updates and, where processor times are known, equal time."""
    lines = {title: [n for n in run.metrics() if n.get("validation_error") is not None] for title, run in best.items()}
    common = max(set.intersection(*({line["update"] for line in each} for each in lines.values())), default=0)
    paces, seconds = equal_time(best)
    rows = []
    for title, run in best.items():
        row = _entries([line for line in lines[title] if line["update"] == common][-1:])
        if seconds is not None:
            row += _entries([line for line in lines[title] if line["update"] * paces[title] <= seconds][-1:])
            row += (Entry(f"{1000 * paces[title]:.2f}"),)
        detail = f"K = {run.config.num_samples}, rate {run.config.learning_rate:g}"
        rows.append((Entry(title, detail, links_to=anchor(run.name)), *row))
    after = [f"after {short_count(common)} updates"]
    if seconds is not None:
        after.append(f"after {time_in_words(seconds)}")
    headings = ("method", *(f"{what} {when}" for when in after for what in ("wrong", "log-loss")))
    of_time = () if seconds is None else ("ms an update",)
    return Table("Validation: labels wrong, and log-loss in nats", (*headings, *of_time), tuple(rows))


def _entries(found: list[dict]) -> tuple[Entry, ...]:
    line = found[0] if found else {}
    error, log_loss = line.get("validation_error"), line.get("validation_log_loss")
    if error is None or log_loss is None:
        return (MISSING, MISSING)
    return Entry(f"{error:.2%}"), Entry(f"{log_loss:.3f}")


def _outcome(best: dict[str, Run]) -> Table:
    """Return errors and negative log-likelihoods of the test set."""
    rows = []
    for title, run in best.items():
        updates, record = last_evaluation(run, NUM_SAMPLES) or (run.updates, {})
        heading = Entry(title, f"{short_count(updates)} updates", links_to=anchor(run.name))
        if "error" not in record or "error_of_one" not in record:
            entries = [Entry("not evaluated", is_missing=True)] * 3
        else:
            likelihood = f"{record['negative_log_likelihood']:.3f} ± {record['standard_error']:.3f}"
            entries = [Entry(f"{record['error']:.2%}"), Entry(f"{record['error_of_one']:.2%}"), Entry(likelihood)]
        rows.append((heading, *entries))
    headings = ("method", "wrong, mean of 20 paths", "wrong, one path", f"−log P(y), {NUM_SAMPLES} samples")
    return Table("Test set: labels wrong, and negative log-likelihood in nats", headings, tuple(rows))


def _log_losses(run: Run) -> Points:
    return run.curve("validation_log_loss")


CLAIMS = tuple(
    Claim(
        f"Hard attention with several paths for each image ({method}) has a lower log-loss than with one (RAM), after "
        "equally many updates",
        "Ba et al. (2015)",
        by_curves([cell("RAM"), cell(method)], falls, _log_losses, lambda points: points[-1][1]),
    )
    for method in ("WS-RAM", "VIMCO")
)

register_study(
    Study(
        "attention",
        "Hard attention: RAM, WS-RAM, importance-sampled EM and VIMCO",
        "labels wrong and log-loss after equal updates and equal time, test negative log-likelihood, places looked at",
        runs,
        show,
        evaluation_samples=NUM_SAMPLES,
        data="translated-mnist",
        claims=CLAIMS,
    )
)
