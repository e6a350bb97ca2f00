"""Figure 4 (supplement E): completions of digits by a structured model."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.curves import picture_of
from vimco.studies.document import Block
from vimco.studies.paper.protocol import at_every_rate, structured
from vimco.studies.results import chosen
from vimco.studies.study import Study, register_study

CELLS = structured("learned", "vimco", 20)
CAPTION = (
    "Test images on top; below them the same top halves, each with the bottom half's probabilities given one draw from "
    "the prior."
)


def runs() -> list[RunConfig]:
    """The model of `figure-2` with VIMCO, K = 20, learned proposal."""
    return at_every_rate(CELLS)


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Completions by the chosen model."""
    return [picture_of(next(iter(chosen(found, CELLS[0])), None), study.name, CAPTION)]


register_study(Study("figure-4", "Figure 4: completions of digits by the three-layer model", "completions", runs, show))
