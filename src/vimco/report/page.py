"""A document as one web page that needs nothing else: no network, no script, no file beside it."""

import base64
from html import escape

from vimco.studies.document import Block, Commands, Document, Entry, Picture, Section, Table, Text

MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png"}

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6675; --paper: #ffffff; --tint: #f3f6fa; --rule: #d5dce6;
  --accent: #0059a3; --best: #e2f1e6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --quiet: #a3aebd; --paper: #14181f; --tint: #1c222c;
  --rule: #36404f; --accent: #7fbdf5; --best: #1d3b2a; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 5rem; max-width: 74rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; letter-spacing: -0.01em; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3.5rem 0 0.75rem; padding-top: 0.75rem;
  border-top: 1px solid var(--rule); }
p { max-width: 46rem; margin: 0.6rem 0; }
a { color: var(--accent); }
nav { margin: 1.5rem 0 0; padding: 0.9rem 1.1rem; background: var(--tint); border-radius: 0.5rem; }
nav ul { margin: 0; padding-left: 1.2rem; }
li { margin: 0.2rem 0; }
.scroll { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.5rem; }
th, td { padding: 0.45rem 0.8rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
thead th { border-bottom: 2px solid var(--rule); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0.4rem; }
tbody th { font-weight: 500; }
td small, th small { display: block; color: var(--quiet); font-size: 0.78rem; line-height: 1.35; font-weight: 400; }
.borrowed { color: var(--quiet); background: var(--tint); }
.prose { white-space: normal; text-align: left; overflow-wrap: anywhere; min-width: 12rem; }
.best { background: var(--best); }
.missing { color: var(--quiet); font-style: italic; }
:target { outline: 2px solid var(--accent); outline-offset: -2px; }
figure { margin: 1.5rem 0; }
figure img { display: block; max-width: 100%; height: auto; padding: 0.75rem; background: #ffffff;
  border-radius: 0.5rem; border: 1px solid var(--rule); }
figcaption { color: var(--quiet); font-size: 0.9rem; margin-top: 0.5rem; max-width: 46rem; }
details { margin: 0.3rem 0; border: 1px solid var(--rule); border-radius: 0.4rem; padding: 0.35rem 0.8rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; background: var(--tint); padding: 0.7rem 0.9rem; border-radius: 0.4rem; font-size: 0.85rem; }
@media print { body { max-width: none; padding: 0; } nav { display: none; } }
"""


def html(document: Document) -> str:
    """The whole page."""
    introduction = "\n".join(f"<p>{escape(text)}</p>" for text in document.introduction)
    contents = "\n".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in document.sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(document.title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(document.title)}</h1>
{introduction}
</header>
<nav aria-label="Contents"><ul>
{contents}
</ul></nav>
<main>
{"".join(map(_section, document.sections))}</main>
</body>
</html>
"""


def _section(section: Section) -> str:
    blocks = "\n".join(map(_block, section.blocks))
    heading = f'<h2 id="{section.anchor}-title">{escape(section.title)}</h2>'
    return (
        f'<section id="{section.anchor}" aria-labelledby="{section.anchor}-title">\n{heading}\n{blocks}\n</section>\n'
    )


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Picture():
            source = f"data:{MEDIA_TYPES[block.kind]};base64,{base64.b64encode(block.content).decode()}"
            image = f'<img src="{source}" alt="{escape(block.alternative)}">'
            return f"<figure>{image}<figcaption>{escape(block.caption)}</figcaption></figure>"
        case Text():
            return f"<p>{escape(block.text)}</p>"
        case Commands():
            lines = escape("\n".join(block.lines))
            return (
                f"<details><summary>{escape(block.name)}</summary><p>{escape(block.text)}</p>"
                f"<pre><code>{lines}</code></pre>"
                f'<pre class="configuration"><code>{escape(block.configuration)}</code></pre></details>'
            )


def _table(table: Table) -> str:
    headings = "".join(
        f'<th scope="col"{_classes(borrowed=i in table.borrowed, prose=i in table.prose)}>{escape(heading)}</th>'
        for i, heading in enumerate(table.headings)
    )
    rows = "\n".join(
        "<tr>" + "".join(_cell(table, i, entry) for i, entry in enumerate(row)) + "</tr>" for row in table.rows
    )
    # The box scrolls where a screen is narrow, so it must be reachable by the keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.caption)}"><table>\n'
        f"<caption>{escape(table.caption)}</caption>\n"
        f"<thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _cell(table: Table, column: int, entry: Entry) -> str:
    text = escape(entry.text)
    if entry.links_to:
        text = f'<a href="#{entry.links_to}">{text}</a>'
    if entry.is_best:
        text = f"<strong>{text}</strong>"
    if entry.detail:
        text += f"<small>{escape(entry.detail)}</small>"
    classes = _classes(
        borrowed=column in table.borrowed,
        prose=column in table.prose,
        best=entry.is_best,
        missing=entry.is_missing,
    )
    identity = f' id="{entry.anchor}"' if entry.anchor else ""
    return f'<th scope="row"{identity}{classes}>{text}</th>' if column == 0 else f"<td{identity}{classes}>{text}</td>"


def _classes(**present: bool) -> str:
    names = [name for name, is_present in present.items() if is_present]
    return f' class="{" ".join(names)}"' if names else ""
