"""Studies: what to run for a table or a figure, the runner, and the choice among runs. `paper` holds the paper's."""

from vimco.studies.paper.runs import STUDIES, named_study
from vimco.studies.study import Cell, Study

__all__ = ["STUDIES", "Cell", "Study", "named_study"]
