"""A check of links: each within the site leads to an existing file and anchor, and nothing is loaded from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADS = {("link", "href"), ("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("object", "data")}


class Reader(HTMLParser):
    """A parser that collects the anchors in a page, and the addresses that it links to or loads."""

    def __init__(self, page: Path):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the anchor and the address of one tag."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src", "data") and value:
                is_loaded = (tag, name) in LOADS and dict(attrs).get("rel") in (None, "stylesheet", "icon", "preload")
                self.links.append((value, is_loaded))


def anchors_as_targets(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn `<a id="name"></a>` before headings into MyST targets, and links to those of other pages into HTML."""
    text = re.sub(r'^<a id="([^"]+)"></a>\n\n(?=#)', r"(\1)=\n", source[0], flags=re.MULTILINE)
    for name in re.findall(r'<a id="([^"]+)"></a>', text):
        text = re.sub(rf"\[([^]]*)\]\(#{re.escape(name)}\)", rf'<a href="#{name}">\1</a>', text)
    source[0] = text


def check(app: Sphinx, exception: Exception | None) -> None:
    """Refuse a site with a broken link."""
    if exception or app.builder.format != "html":
        return
    root, problems = Path(app.outdir).resolve(), []
    pages = {page: Reader(page) for page in sorted(root.rglob("*.html"))}
    for page, reader in pages.items():
        for address, is_loaded in reader.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if is_loaded and parts.scheme != "data":
                    problems.append(f"{page.relative_to(root)} loads {address} from the network")
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                problems.append(f"{page.relative_to(root)} leads to {address}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                problems.append(f"{page.relative_to(root)} leads to {address}, where there is no such anchor")
    if problems:
        raise ExtensionError("\n".join(problems))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both."""
    app.connect("source-read", anchors_as_targets)
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
