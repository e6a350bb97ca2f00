"""Each study's results as a section of a document. The same for `vimco study` and for `vimco report`."""

from collections.abc import Callable, Mapping, Sequence

from vimco.studies.document import Block, Section, Text
from vimco.studies.paper import curves, tables
from vimco.studies.paper.tables import title_of
from vimco.studies.results import Result, on_protocol
from vimco.studies.study import Cell, Study

SHOWN: Mapping[str, Callable[[Sequence[Result]], list[Block]]] = {
    "table-1": tables.table_1,
    "figure-1": curves.figure_1,
    "figure-2": curves.figure_2,
    "structured-nll": tables.structured_nll,
    "figure-3": curves.figure_3,
    "figure-4": curves.figure_4,
    "means": lambda results: [*tables.means(results), *curves.means(results)],
}


def study_section(study: Study, results: Sequence[Result]) -> Section:
    """What a study has shown so far, and which of its cells were not run."""
    missing = [cell for cell in study.cells if not on_protocol(results, cell)]
    if len(missing) == len(study.cells):
        return Section(study.name, study.title, (Text(f"Not run. The command is: vimco study {study.name}"),))
    blocks = SHOWN[study.name](results)
    if missing:
        blocks.append(Text(f"Not run: {_listed(missing)}."))
    return Section(study.name, study.title, tuple(blocks))


def title_of_cell(cell: Cell) -> str:
    """What a person calls it."""
    proposal = f", {cell.proposal} proposal" if cell.task == "structured" else ""
    return f"{title_of(cell.estimator)}, K = {cell.num_samples}{proposal}"


def _listed(cells: Sequence[Cell]) -> str:
    sizes: dict[str, list[str]] = {}
    for cell in cells:
        proposal = f", {cell.proposal} proposal" if cell.task == "structured" else ""
        sizes.setdefault(f"{title_of(cell.estimator)}{proposal}", []).append(str(cell.num_samples))
    return "; ".join(f"{title}, K = {', '.join(numbers)}" for title, numbers in sizes.items())
