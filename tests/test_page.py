"""The report's page in a real browser, opened from disk as a reader opens it."""

import re

import pytest
from browser import browser_program, open_page
from recorded import recorded_run

from vimco.report import write_report
from vimco.studies import STUDIES
from vimco.studies.paper.claims import CLAIMS

PROGRAM = browser_program()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium here: install Debian's package to test the page")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of every kind of result: a whole table, half a figure, a picture, and a study that was not run."""
    folder = tmp_path_factory.mktemp("runs")
    for number, config in enumerate(STUDIES["table-1"].adjusted(updates=2000, rates=[1e-3], averaging=0.9)):
        recorded_run(folder, config, bound=-100.0 - number, likelihood=90.0 + number, average=89.0 + number)
    for config in STUDIES["figure-2"].adjusted(updates=2000, rates=[1e-3], only=["learned"]):
        recorded_run(folder, config, is_finished=config.num_samples != 50)
    output = tmp_path_factory.mktemp("report")
    _, path, _ = write_report([folder], output)
    with open_page(PROGRAM, tmp_path_factory.mktemp("profile")) as page:
        page.open(path)
        yield page


def test_the_console_stays_empty_and_nothing_else_is_loaded(page):
    assert page.complaints() == []
    addresses = [re.match(r"[a-z]+:", address).group() for address in page.requests()]
    assert set(addresses) <= {"file:", "data:"}
    assert addresses.count("file:") == 1


def test_complaints_are_noticed(page, tmp_path):
    """What the test above looks for is found where there is something to find."""
    broken = tmp_path / "broken.html"
    broken.write_text('<img src="missing.png"><script>console.error("this"); nothing.at.all</script>')
    with open_page(PROGRAM, tmp_path / "profile") as other:
        other.open(broken)
        kinds = {event["method"] for event in other.complaints()}
    assert {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Network.loadingFailed"} <= kinds


def test_every_picture_is_there_has_a_size_and_is_told_in_words(page):
    pictures = page.value(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.naturalHeight, i.clientWidth, i.clientHeight,"
        " i.alt.length])"
    )
    assert len(pictures) == 6  # figures 1 to 4, samples, and the means with the two runs that it shares
    for is_complete, *sizes, words in pictures:
        assert is_complete
        assert min(sizes) > 100
        assert words > 20


def test_every_table_has_its_rows_and_headings(page):
    tables = page.value(
        "[...document.querySelectorAll('table')].map(t => [t.closest('section').id, t.tBodies[0].rows.length,"
        " [...t.rows].map(r => r.cells.length), t.clientHeight])"
    )
    sizes = [(section, rows) for section, rows, _, _ in tables]
    assert sizes == [
        ("table-1", 5),  # K = 1, 2, 5, 10, 50
        ("table-1", 5),  # averaged
        ("means", 2),  # K = 5, 10
        ("means", 2),
        ("claims", len(CLAIMS)),
        ("runs", 13 + 9),
    ]
    for _, _, cells, height in tables:
        assert len(set(cells)) == 1  # as many in each row as in the heading
        assert height > 50


def test_numbers_lead_to_the_run_that_gave_them(page):
    dangling = page.value(
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.getElementById(a.hash.slice(1))).length"
    )
    assert dangling == 0
    assert page.value("document.querySelectorAll('#table-1 td a').length") == 2 * 13
    identities = page.value("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(identities) == len(set(identities))


def test_the_best_of_a_row_is_marked_and_what_was_not_run_is_said(page):
    row = "[...document.querySelectorAll('#table-1 tbody')[0].rows].find(r => r.cells[0].textContent == '2')"
    best = page.value(f"[...{row}.cells].filter(c => c.querySelector('strong')).map(c => c.firstChild.textContent)")
    assert best == ["91.00 ± 0.25", "93.5"]
    assert "Not run" in page.value("document.querySelector('#structured-nll').textContent")
    assert page.value("document.querySelectorAll('.missing').length") > 0


def test_a_narrow_screen_needs_no_sideways_scrolling_of_the_page(page):
    page.resize(400)
    assert page.value("document.documentElement.scrollWidth") <= 400
