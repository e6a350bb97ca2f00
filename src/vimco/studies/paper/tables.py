"""Negative log-likelihoods in tables, beside the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vimco.runs.directory import Weights
from vimco.studies.document import Block, Entry, Table, Text
from vimco.studies.paper import quoted
from vimco.studies.paper.runs import MEANS, SAMPLES_OF_GENERATIVE, SAMPLES_OF_STRUCTURED, STUDIES
from vimco.studies.results import Number, Result, chosen, number, on_protocol
from vimco.studies.study import Cell

TITLES = {
    "vimco": "VIMCO",
    "nvil": "NVIL",
    "rws": "RWS (wake)",
    "vimco-arithmetic": "VIMCO, arithmetic mean",
    "vimco-leave-one-out": "VIMCO, f̂ = 0",
    "vimco-learned": "VIMCO, learned f(x)",
    "naive": "naive",
    "rws-sleep": "RWS (sleep)",
    "rws-both": "RWS (wake and sleep)",
}
MEANS_TITLES = dict(zip(MEANS, ("geometric mean", "arithmetic mean", "f̂ = 0", "learned f(x)"), strict=True))
PROPOSALS = {"prior": "samples from the prior", "learned": "samples from a learned proposal"}

EXPLANATION = (
    "The learning rate of each cell was chosen by the validation bound. ± is the standard error over the test images; "
    "where there are several seeds, the number is their mean and ± its standard error over seeds. The lowest of each "
    "row is marked, if all of them were measured after equally many updates; below each number are its own. The paper "
    "does not state its updates."
)
NOT_COMPARABLE = f"The paper's numbers are of {quoted.DATA}, and not comparable with those of other data."


def title_of(estimator: str) -> str:
    """What a person calls an estimator; one that is new here keeps the name it has."""
    return TITLES.get(estimator, estimator)


def generative(estimator: str, K: int) -> Cell:
    """A cell of the 200-200-200 model of whole images."""
    return Cell("generative", "learned", (200, 200, 200), estimator, K)


def table_1(results: Sequence[Result]) -> list[Block]:
    """Table 1: estimators in columns, K in rows."""
    estimators = ("vimco", "nvil", "rws")
    return _tables(
        results,
        ("K", *(TITLES[estimator] for estimator in estimators)),
        {str(K): [generative(estimator, K) for estimator in estimators] for K in (1, 2, 5, 10, 50)},
        {generative(*key): value for key, value in quoted.TABLE_1.items()},
        set(STUDIES["table-1"].cells),
        SAMPLES_OF_GENERATIVE,
    )


def structured_nll(results: Sequence[Result]) -> list[Block]:
    """The two-layer structured model: estimators in columns, proposals in rows."""

    def cell(estimator: str, proposal: str) -> Cell:
        return Cell("structured", proposal, (200, 200), estimator, 20)

    blocks = _tables(
        results,
        ("K = 20", TITLES["vimco"], TITLES["rws"]),
        {title: [cell("vimco", proposal), cell("rws", proposal)] for proposal, title in PROPOSALS.items()},
        {cell(*key): value for key, value in quoted.STRUCTURED_NLL.items()},
        set(STUDIES["structured-nll"].cells),
        SAMPLES_OF_STRUCTURED,
    )
    return [
        *blocks,
        Text(
            f"The best result before the paper was {quoted.RAIKO} (Raiko et al., the same model trained with a biased "
            "estimator, as the paper quotes it). RWS needs a proposal to learn, so it has no number with the prior."
        ),
    ]


def means(results: Sequence[Result]) -> list[Block]:
    """What stands in for the left-out f in columns, K in rows."""
    return _tables(
        results,
        ("K", *MEANS_TITLES.values()),
        {str(K): [generative(estimator, K) for estimator in MEANS] for K in (5, 10)},
        {},
        set(STUDIES["means"].cells),
        SAMPLES_OF_GENERATIVE,
    )


def anchor(result: Result) -> str:
    """Where a document tells of a run."""
    return f"run-{result.name.replace('/', '-')}"


def short_count(updates: int) -> str:
    """200,000 as 200k, where nothing is lost by it."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if updates >= size and updates % (size // 100) == 0:
            return f"{updates / size:g}{unit}"
    return f"{updates:,}"


def minus(value: float, digits: int = 2) -> str:
    """A number with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def _tables(
    results: Sequence[Result],
    headings: tuple[str, ...],
    rows: Mapping[str, Sequence[Cell]],
    published: Mapping[Cell, float],
    existing: set[Cell],
    num_samples: int,
) -> list[Block]:
    """The table of raw parameters; that of averaged ones, where any run keeps them; and how to read them."""
    columns = [i for i in range(len(headings) - 1) if any(cells[i] in published for cells in rows.values())]
    is_averaged = any(r.run.config.averaging for cells in rows.values() for c in cells for r in on_protocol(results, c))
    blocks: list[Block] = []
    weights: Weights
    for weights in ("best", "best-average") if is_averaged else ("best",):
        body = []
        for title, cells in rows.items():
            numbers = [number(results, cell, num_samples, weights) for cell in cells]
            entries = [
                _entry(results, cell, value, weights) if cell in existing else Entry("–")
                for cell, value in zip(cells, numbers, strict=True)
            ]
            values = [published.get(cells[i]) for i in columns]
            borrowed = [Entry("–" if value is None else f"{value:.1f}") for value in values]
            is_fair = len({value.updates for value in numbers if value}) == 1  # a longer run would win by its length
            here = _with_best(entries, [value.value if value and is_fair else None for value in numbers])
            body.append((Entry(title), *here, *_with_best(borrowed, values)))
        parameters = "averaged parameters" if weights == "best-average" else "the best model by validation"
        blocks.append(
            Table(
                f"Negative log-likelihood of the test set in nats: {parameters}, {num_samples} samples an image",
                (*headings, *(f"{headings[i + 1].removesuffix(' (wake)')}, paper" for i in columns)),
                tuple(body),
                frozenset(range(len(headings), len(headings) + len(columns))),
            )
        )
    blocks.append(Text(EXPLANATION))
    if published and any(result.run.data["name"] != quoted.DATA for result in results):
        blocks.append(Text(NOT_COMPARABLE))
    return blocks


def _entry(results: Sequence[Result], cell: Cell, value: Number | None, weights: Weights) -> Entry:
    if value is not None:
        rates = ", ".join(dict.fromkeys(f"{result.run.config.learning_rate:g}" for result in value.results))
        seeds = "" if len(value.results) == 1 else f", {len(value.results)} seeds"
        detail = f"{short_count(value.updates)} updates, rate {rates}{seeds}"
        return Entry(f"{minus(value.value)} ± {value.standard_error:.2f}", detail, links_to=anchor(value.results[0]))
    best = chosen(results, cell, weights)
    if best:
        update, bound = best[0].best(weights) or (0, 0.0)
        detail = f"{short_count(best[0].updates)} updates, validation bound {minus(bound)} at {short_count(update)}"
        return Entry("not evaluated", detail, is_missing=True, links_to=anchor(best[0]))
    runs = on_protocol(results, cell)
    if not runs:
        return Entry("not run", is_missing=True)
    if weights == "best-average" and not any(result.run.config.averaging for result in runs):
        return Entry("not kept", is_missing=True)
    return Entry("in training", "no validation yet", is_missing=True)


def _with_best(entries: Iterable[Entry], values: Sequence[float | None]) -> list[Entry]:
    """Marks the lowest of the row, where there is something to compare it with."""
    known = [value for value in values if value is not None]
    lowest = min(known) if len(known) > 1 else None
    return [
        replace(entry, is_best=lowest is not None and value == lowest)
        for entry, value in zip(entries, values, strict=True)
    ]
