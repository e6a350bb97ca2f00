"""A line of a figure, and the colours of lines. Matplotlib, which is slow to import, is needed only to draw them."""

from collections.abc import Sequence
from typing import NamedTuple

# Okabe & Ito's palette, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

COLOUR_OF_K = {1: COLOURS[6], 2: COLOURS[0], 5: COLOURS[1], 10: COLOURS[2], 20: COLOURS[2], 50: COLOURS[3]}


class Curve(NamedTuple):
    """One line of a panel. The legend shows the lines of a group together, and lines with the same label once."""

    label: str
    group: str
    points: Sequence[tuple[int, float]]  # update, value
    colour: str
    line: str = "-"
