"""Pictures: curves of runs in panels, and what runs have drawn themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, cycle, product

from vimco.estimators import ESTIMATORS
from vimco.files import read_file
from vimco.runs.curve import COLOUR_OF_K, COLOURS, Curve
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.document import Picture, Plot, Text
from vimco.studies.results import chosen

Points = list[tuple[int, float]]  # update, value

OF_BOUNDS = (
    "The bound on the validation set with the training K (in brackets), against parameter updates; for each curve the "
    "learning rate chosen by it."
)
LARGEST_PICTURE = 20_000_000  # bytes


def validation_points(run: Run) -> Points:
    """Return update and validation bound."""
    return run.curve("validation_bound")


def signal_points(run: Run) -> Points:
    """Return update and root mean square of the signal, over about a fiftieth of the run at a time."""
    points = run.curve("signal_rms")
    window = max(1, len(points) // 50)
    sums = list(accumulate((value**2 for _, value in points), initial=0.0))
    means = [(after - before) / window for before, after in zip(sums, sums[window:], strict=False)]
    return [(update, mean**0.5) for (update, _), mean in zip(points[window - 1 :], means, strict=True) if mean > 0]


def without_short_ones(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with at least half as many updates as the longest."""
    longest = max((run.updates for run in runs), default=0)
    return [run for run in runs if 2 * run.updates >= longest]


def curves(
    runs: Sequence[Run], cells: Iterable[Cell], points_of: Callable[[Run], Points] = validation_points
) -> list[Curve]:
    """Return the curve of the chosen run of each cell and seed, with a colour per K and a line style per estimator.

    Seeds with less than half of the updates of the longest are left out: they would lie below its curve.
    """
    return [
        Curve(
            cell.short_title,
            cell.estimator,
            points,
            COLOUR_OF_K.get(cell.num_samples, COLOURS[4]),
            ESTIMATORS[cell.estimator].line,
        )
        for cell in cells
        for run in without_short_ones(chosen(runs, cell))
        if (points := points_of(run))
    ]


def distinct_curves(contents: Mapping[str, Points], in_column: int = 100) -> list[Curve]:
    """Return a curve for each title that has points, in a style that depends on the title's place alone.

    The legend has a column for each so many titles.
    """
    styles = cycle(product(("-", "--", ":", "-."), COLOURS))
    return [
        Curve(title, str(i // in_column), points, colour, line)
        for i, ((title, points), (line, colour)) in enumerate(zip(contents.items(), styles, strict=False))
        if points
    ]


def plot(
    name: str, contents: Mapping[str, Sequence[Curve]], quantity: str, caption: str, *, is_logarithmic: bool = False
) -> Picture:
    """Return the panels as vector graphics; the alternative text gives the end of each curve.

    A logarithmic axis has no place for values that are not positive, so they are left out.
    """
    from vimco.runs.figures import figure_bytes, panels  # matplotlib is slow to import and rarely needed

    if is_logarithmic:
        contents = {
            title: [c for curve in curves if (c := _positive(curve)).points] for title, curves in contents.items()
        }
    ends = [
        f"{title}: "
        + (", ".join(f"{c.label} {c.points[-1][1]:.2f} at update {c.points[-1][0]:,}" for c in curves) or "not run")
        for title, curves in contents.items()
    ]
    content = figure_bytes(panels(contents, quantity, is_logarithmic=is_logarithmic), "svg")
    words = f"{quantity} against updates. {'; '.join(ends)}."
    return Picture(name, "svg", content, caption, words, Plot(quantity, contents, is_logarithmic))


def _positive(curve: Curve) -> Curve:
    return curve._replace(points=[(update, value) for update, value in curve.points if value > 0])


def picture_of(run: Run | None, name: str, caption: str) -> Picture | Text:
    """Return the picture in a run's directory: drawn at its end, unless `vimco sample` has replaced it."""
    if run is None:
        return Text("In training: no validation yet.")
    try:
        content = read_file(run.path / "samples.png", LARGEST_PICTURE, follow=False)
    except FileNotFoundError:
        return Text(f"There is no picture in {run.name} yet: it draws one at its end.")
    except OSError as error:
        return Text(f"The picture of {run.name} is left out: samples.png cannot be read ({error.strerror}).")
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return Text(f"The picture of {run.name} is left out: samples.png is not a PNG file of at most 20 MB.")
    caption = f"{caption} This is samples.png of {run.name}."
    return Picture(name, "png", content, caption, caption)
