"""The report's page in a real browser, opened from disk."""

import re

import pytest
from browser import browser_program, open_page
from recorded import recorded_run

from vimco.report import write_report
from vimco.runs.config import RunConfig
from vimco.studies import STUDIES

PROGRAM = browser_program()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium here: install Debian's package to test the page")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Yield a report with every kind of result: a full table, half a figure, a picture, a study that was not run."""
    folder = tmp_path_factory.mktemp("runs")
    for number, config in enumerate(STUDIES["table-1"].adjusted(updates=2000, rates=[1e-3], averaging=0.9)):
        recorded_run(folder, config, bound=-100.0 - number, likelihood=90.0 + number, average=89.0 + number)
    for config in STUDIES["figure-2"].adjusted(updates=2000, rates=[1e-3], only=["learned"]):
        recorded_run(folder, config, is_finished=config.num_samples != 50)
    output = tmp_path_factory.mktemp("report")
    _, path, _ = write_report([folder], output)
    with open_page(PROGRAM, tmp_path_factory.mktemp("profile")) as page:
        page.open(path)
        page.path = path
        yield page


def test_the_console_stays_empty_and_nothing_else_is_loaded(page):
    assert page.complaints() == []
    addresses = [re.match(r"[a-z]+:", address).group() for address in page.requests()]
    assert set(addresses) <= {"file:", "data:"}
    assert addresses.count("file:") == 1


def test_complaints_are_noticed(page, tmp_path):
    """The test above would find errors if there were any."""
    broken = tmp_path / "broken.html"
    broken.write_text('<img src="missing.png"><script>console.error("this"); nothing.at.all</script>')
    with open_page(PROGRAM, tmp_path / "profile") as other:
        other.open(broken)
        kinds = {event["method"] for event in other.complaints()}
    assert {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Network.loadingFailed"} <= kinds


def test_every_picture_is_there_has_a_size_and_is_told_in_words(page):
    pictures = page.value(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.naturalHeight, i.alt.length, i.clientWidth,"
        " (i.parentElement.querySelector('svg') ?? i).clientHeight])"
    )
    assert len(pictures) == 7  # figures 1 to 4, means and estimators with the runs that they share, and samples
    for is_complete, width, height, words, _, shown_height in pictures:
        assert is_complete
        assert min(width, height, shown_height) > 100
        assert words > 20
    is_picture = [bool(width) for *_, width, _ in pictures]  # curves are drawn in their place
    assert is_picture == [False, False, False, True, False, True, False]


PANEL = "document.querySelector('#figure-1 .panel svg')"
TIP = "document.querySelector('#figure-1 .tip').textContent"


def test_curves_answer_the_pointer_and_the_keyboard(page):
    frame = page.value(f"{PANEL}.scrollIntoView({{behavior: 'instant'}}); {PANEL}.getBoundingClientRect().toJSON()")
    here = page.value(f"{PANEL}.querySelector('path').getAttribute('d').split('L').at(-1).split(' ').map(Number)")
    x, y = frame["left"] + here[0], frame["top"] + here[1]
    page._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert page.value(TIP) == "NVIL (1): −100.00 at update 2,000"  # the first run of the table
    assert page.value(f"Number({PANEL}.querySelector('.mark').getAttribute('cx'))") == pytest.approx(here[0], abs=0.1)
    box = page.value("document.querySelector('#figure-1 .tip').getBoundingClientRect().toJSON()")
    assert box["left"] <= x <= box["right"]
    assert 0 < min(abs(box["top"] - y), abs(box["bottom"] - y)) < 30
    page.value(f"{PANEL}.focus()")
    page._call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    assert "at update 1,800" in page.value(TIP)
    page._call("Input.dispatchKeyEvent", type="keyDown", key="ArrowDown")
    assert page.value(TIP).startswith("NVIL (2)")


def test_a_legend_switches_curves_and_updates_can_be_logarithmic(page):
    count, first = f"{PANEL}.querySelectorAll('path').length", f"{PANEL}.querySelector('path').getAttribute('d')"
    before, path = page.value(count), page.value(first)
    button = (
        "[...document.querySelectorAll('#figure-1 .legend button')].find(b => b.textContent.includes('VIMCO (50)'))"
    )
    assert page.value(f"{button}.click(); {button}.ariaPressed") == "false"
    assert page.value(count) == before - 1
    assert page.value(f"{button}.click(); {count}") == before
    page.value("document.querySelector('#figure-1 .legend input').click()")
    assert page.value(first) != path
    ticks = page.value(f"[...{PANEL}.querySelectorAll('text')].map(t => t.textContent)")
    assert {"200", "500", "1,000", "2,000"} <= set(ticks)
    page.value("document.querySelector('#figure-1 .legend input').click()")
    assert page.value(first) == path


def test_a_switch_shows_raw_or_averaged_parameters(page):
    shown = (
        "[...document.querySelectorAll('#table-1 table')].filter(t => t.checkVisibility())"
        ".map(t => t.rows[2].cells[1].firstChild.textContent)"
    )
    distances = page.value(shown)[1]
    assert page.value(shown) == ["91.00 ± 0.25", distances]
    page.value("document.querySelectorAll('#table-1 input')[1].click()")
    assert page.value(shown) == ["90.00 ± 0.25", distances]
    page.value("document.querySelectorAll('#table-1 input')[0].click()")


def test_a_bound_without_digits_and_very_many_points_are_drawn(page, tmp_path):
    """Steps of one are lost in rounding beside 1e17; and there are more values than a call takes arguments."""
    lines = [f'{{"update": {u}, "validation_bound": -1e17}}\n' for u in (100, 200)]
    (recorded_run(tmp_path / "runs", RunConfig(num_samples=3)) / "metrics.jsonl").write_text("".join(lines))
    _, path, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    page.open(path)
    assert page.complaints() == []
    assert page.value("document.querySelectorAll('figure[data-plot] path').length") > 0
    assert page.value("largest(Array.from({length: 200_000}, (_, i) => i))") == 199_999
    page.open(page.path)


def test_without_scripts_there_are_pictures_and_the_switch_still_works(page, tmp_path):
    with open_page(PROGRAM, tmp_path / "profile") as other:
        other._call("Emulation.setScriptExecutionDisabled", value=True)
        other.open(page.path)
        sizes = other.value("[...document.images].map(i => i.clientHeight)")
        assert len(sizes) == 7
        assert min(sizes) > 100
        other.value("document.querySelectorAll('#table-1 label')[1].click()")
        assert other.value("[...document.querySelectorAll('#table-1 table')].map(t => t.checkVisibility())") == [
            False,
            True,
            True,  # distances from the paper
        ]


def test_every_table_has_its_rows_and_headings(page):
    tables = page.value(
        "[...document.querySelectorAll('table')].map(t => [t.closest('section').id, t.tBodies[0].rows.length,"
        " [...t.rows].map(r => r.cells.length), t.clientHeight])"
    )
    sizes = [(section, rows) for section, rows, _, _ in tables]
    assert sizes == [
        ("table-1", 5),  # K = 1, 2, 5, 10, 50
        ("table-1", 5),  # averaged
        ("table-1", 13),  # distances from the paper
        ("means", 2),  # K = 5, 10
        ("means", 2),
        *[("estimators", 2)] * 4,  # with the runs that it shares: K = 2, 5
        ("claims", sum(len(study.claims) for study in STUDIES.values())),
        ("runs", 13 + 9),
    ]
    for _, _, cells, _ in tables:
        assert len(set(cells)) == 1  # as many in each row as in the heading
    shown = [height > 50 for section, *_, height in tables if section != "estimators"]
    assert shown == [True, False, True, True, False, True, True]  # one of two is shown


def test_numbers_lead_to_the_run_that_gave_them(page):
    dangling = page.value(
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.getElementById(a.hash.slice(1))).length"
    )
    assert dangling == 0
    assert page.value("document.querySelectorAll('#table-1 td a').length") == 2 * 13
    identities = page.value("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(identities) == len(set(identities))


def test_the_lower_of_each_pair_is_marked_and_what_was_not_run_is_said(page):
    row = "[...document.querySelectorAll('#table-1 tbody')[0].rows].find(r => r.cells[0].textContent == '2')"
    best = page.value(f"[...{row}.cells].filter(c => c.querySelector('strong')).map(c => c.firstChild.textContent)")
    assert best == ["91.00 ± 0.25", "92.00 ± 0.25", "93.00 ± 0.25"]  # the paper has 93.5, 93.6 and 94.6
    assert "Not run" in page.value("document.querySelector('#structured-nll').textContent")
    assert page.value("document.querySelectorAll('.missing').length") > 0


def test_a_narrow_screen_needs_no_sideways_scrolling_of_the_page(page):
    page.resize(400)
    assert page.value("document.documentElement.scrollWidth") <= 400
