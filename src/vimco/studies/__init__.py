"""Studies: the runs of a table or a figure, the runner, and the choice among runs. `paper` holds the paper's."""

from vimco.studies import paper
from vimco.studies.cells import Cell
from vimco.studies.study import STUDIES, Study, register_study

__all__ = ["STUDIES", "Cell", "Study", "paper", "register_study"]
