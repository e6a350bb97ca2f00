"""The built site in a real browser: every page fits a desktop and a phone, loads nothing else, and shows its formulas.

`make docs` builds it; without it these tests are skipped.
"""

from pathlib import Path

import pytest
from browser import browser_program, open_page

SITE = Path(__file__).parents[1] / "site"
PAGES = sorted(page for page in SITE.rglob("*.html") if page.name != "search.html")
PROGRAM = browser_program()
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no chromium here: install Debian's package to test the site"),
    pytest.mark.skipif(not PAGES, reason="no site here: make docs builds it"),
]
TALLEST = 150  # pixels of a formula


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_page(PROGRAM, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("path", PAGES, ids=lambda page: page.relative_to(SITE).as_posix())
def test_a_page_fits_and_is_complete(browser, path):
    for width, scheme in ((390, "dark"), (1280, "light")):
        browser.resize(width)
        browser.open(path)
        browser.prefer(scheme)
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.complaints() == []
        assert {address.split(":")[0] for address in browser.requests()} <= {"file", "data", "blob"}
        heights = browser.value(
            "[...document.querySelectorAll('.formula svg')].map(f => f.getBoundingClientRect().height)"
        )
        assert all(5 < height < TALLEST for height in heights)
        assert browser.value("[...document.images].every(i => i.complete && i.naturalWidth && i.alt)")


def test_wide_tables_are_cards_on_a_phone(browser):
    browser.resize(390)
    browser.open(SITE / "which-estimator.html")
    right, left, label = browser.value(
        "(() => { const [first, second] = document.querySelector('table.cards tbody tr').cells;"
        " const box = second.getBoundingClientRect();"
        " return [first.getBoundingClientRect().bottom, box.top, getComputedStyle(second, '::before').content]; })()"
    )
    assert left >= right  # below one another
    assert label == '"take"'
    browser.resize(1280)
    assert browser.value("getComputedStyle(document.querySelector('table.cards td')).display") == "table-cell"


def test_a_table_of_numbers_stays_a_table(browser):
    browser.resize(390)
    browser.open(SITE / "explanation" / "speed.html")
    assert browser.value("getComputedStyle(document.querySelector('table td')).display") == "table-cell"


def test_tabs_show_one_library_at_a_time(browser):
    browser.resize(1280)
    browser.open(SITE / "tutorial" / "other-libraries.html")
    shown = "[...document.querySelectorAll('.sd-tab-content')].map(tab => tab.checkVisibility())"
    assert browser.value(shown) == [True, False, False]
    browser.drag([browser.place(".sd-tab-label:nth-of-type(3)")])
    assert browser.value(shown) == [False, False, True]
    assert "vimco.torch" in browser.value("document.querySelector('.sd-tab-set').innerText")
