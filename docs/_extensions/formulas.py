"""Formulas as SVG, drawn when the site is built: the browser needs no script, no font and no network."""

import html
import re
from xml.etree import ElementTree

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator
from ziamath.tex import tex2mml

TALLEST = 6  # em: a bracket that grew out of all proportion is taller


def mathml(tex: str, *, is_inline: bool) -> ElementTree.Element:
    """Return a formula in MathML, with hats that are accents: as operators they would stretch beyond their letters."""
    text = re.sub(r"<mo>(&#x0*302;)</mo>", r"<mi>\1</mi>", tex2mml(tex, inline=is_inline))
    made = ElementTree.fromstring(text)
    made.attrib["mathcolor"] = "currentColor"
    return made


def drawn(tex: str, size: float, *, is_inline: bool) -> str:
    """Return the SVG of a formula in the colour of the text around it, with its TeX as alternative text."""
    ziamath.config.svg2 = False
    formula = ziamath.Math(mathml(tex, is_inline=is_inline), size=size)
    svg = formula.svgxml()
    width, height = (float(svg.attrib[side]) / size for side in ("width", "height"))
    if height > TALLEST:
        raise ExtensionError(f"The formula {tex} is drawn {height:.0f} em tall: write \\biggl( in place of \\left(.")
    svg.attrib |= {"width": f"{width:.3f}em", "height": f"{height:.3f}em", "role": "img", "aria-label": tex}
    if is_inline:
        svg.attrib["style"] = f"vertical-align: {formula.getyofst() / size:.3f}em"
    return ElementTree.tostring(svg, encoding="unicode")


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line."""
    self.body.append(f'<span class="formula">{drawn(node.astext(), 24, is_inline=True)}</span>')
    raise nodes.SkipNode


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number if it has one."""
    number = f'<span class="number">({html.escape(str(node["number"]))})</span>' if node.get("number") else ""
    name = f' id="{html.escape(node["ids"][0])}"' if node["ids"] else ""
    self.body.append(f'<div class="formula"{name}>{drawn(node.astext(), 24, is_inline=False)}{number}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("formulas", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
