"""Reports of untrusted run directories are harmless for any content, and a bad run does not affect others."""

import itertools
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from browser import browser_program, open_page
from markdown_it import MarkdownIt
from recorded import recorded_run
from rich.console import Console

from vimco import cli
from vimco.report import write_report
from vimco.report.markdown import plain
from vimco.report.terminal import print_section
from vimco.runs.config import RunConfig
from vimco.studies import STUDIES
from vimco.studies.document import Entry, Section, Table, Text, anchor
from vimco.studies.results import collected

NAMES = {
    "html": 'x"><img src=x onerror="document.title=1"><script>document.title=2<',
    "markdown": "[a](javascript:alert(1)) `b` ![c](http://example.org/d.png) **e** | f",
    "mathtext": r"$\frac{1}{0$ _x",
    "control": "\x1b[31mred\x1b[0m\n\u202eback",
    "bytes": os.fsdecode(b"caf\xe9 \xff"),
}


def run_called(folder, name, **options):
    return recorded_run(folder, RunConfig(updates=100, clip=1.0), name=name.replace("/", "∕"), **options)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a report of runs with these names. They belong to no study, so their names are also in a figure."""
    folder = tmp_path_factory.mktemp("runs")
    for name in NAMES.values():
        run_called(folder, name, likelihood=90.0)
    text, page, problems = write_report([folder], tmp_path_factory.mktemp("report"))
    assert problems == []
    return text.read_text(encoding="utf-8"), page


def test_names_stay_text_in_markdown(written):
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(written[0])
    tags = set(re.findall(r"<(\w+)", html))
    assert not tags & {"script", "iframe"}
    assert set(re.findall(r'<img src="([^"]*)"', html)) == {"figures/other-runs.svg"}
    assert {href[0] for href in re.findall(r'href="([^"]*)"', html)} <= {"#"}
    assert "\x1b" not in written[0]
    assert "\\x1b[31mred" in html


@pytest.mark.parametrize(
    "text", ["# no heading", "- no list", "1. no list", "---", "<b>", "a | b", "$x$", "&lt;", "~~a~~", "[a](b)", "a\nb"]
)
def test_plain_text_is_shown_as_it_is(text):
    (paragraph,) = re.findall(r"^<p>(.*)</p>\n$", MarkdownIt("gfm-like", {"linkify": False}).render(plain(text)))
    shown = paragraph.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert shown == text.replace("\n", "\\n")


@pytest.mark.skipif(browser_program() is None, reason="no chromium here")
def test_names_stay_text_on_the_page(written, tmp_path):
    with open_page(browser_program(), tmp_path / "profile") as page:
        page.open(written[1])
        assert page.complaints() == []
        assert {re.match(r"\w+:", address).group() for address in page.requests()} <= {"file:", "data:"}
        assert page.value("document.title").startswith("Variational inference")
        headings = page.value("[...document.querySelectorAll('#runs tbody th')].map(t => t.firstChild.textContent)")
        assert NAMES["html"] in headings
        assert "\\x1b[31mred\\x1b[0m\\n\\u202eback" in headings
        assert "caf\\udce9 \\udcff" in headings
        assert page.value("document.querySelectorAll('script').length") == 1
        # Even an injected script does not run.
        page.value("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))")
        assert page.value("window.ran") is None


def test_nothing_is_sent_to_a_terminal_but_text(tmp_path, capfd):
    entry = Entry("\x1b[2Jgone [bold]", "\x07 [/x]")
    blocks = (Text("\x1b]0;title\x07"), Table("\x1b[31m", ("\x1b[32m",), ((entry,),)))
    print_section(Section("x", "x", blocks), tmp_path, Console())
    printed = capfd.readouterr().out
    assert not set(printed) & {"\x1b", "\x07"}
    assert "\\x1b[2Jgone [bold]" in printed


def test_anchors_are_of_a_safe_alphabet_and_distinct():
    anchors = [anchor(name) for name in (*NAMES.values(), "a b", "a-b", "a_b")]
    assert len(set(anchors)) == len(anchors)
    assert all(re.fullmatch(r"[A-Za-z0-9.-]+", text) for text in anchors)


def metrics(content):
    return "metrics.jsonl", content


def summary(**changes):
    good = {"updates": 100, "best": {"update": 100, "validation_bound": -90.0}, "best_average": None, "note": ""}
    return "summary.json", json.dumps({**good, **changes}).encode()


def config(**changes):
    data = {"name": "mnist", "checksum": "0" * 64, "image_shape": [8, 8], **changes}
    return "config.json", json.dumps({"config": RunConfig().to_json(), "environment": {}, "data": data}).encode()


def huge(**changes):
    record = json.loads(config()[1])
    record["config"] |= changes
    return json.dumps(record).encode()


EVALUATION = {"split": "test", "weights": "best", "seed": 0, "update": 100, "num_samples": 5, "standard_error": 1.0}


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (metrics(b'\xff\xfe{"update": 1}\n'), "1 damaged lines"),
        (metrics(b'7\n"text"\nnull\n[]\n'), "4 damaged lines"),
        (metrics(b'{"validation_bound": -1}\n'), "1 damaged lines"),
        (metrics(b'{"update": "5", "validation_bound": -1}\n'), "1 damaged lines"),
        (
            metrics(b'{"update": 5, "validation_bound": "high"}\n{"update": 5, "validation_bound": Infinity}\n'),
            "2 damaged",
        ),
        (metrics(b'{"update": ' + b"9" * 5000 + b"}\n"), "1 damaged lines"),
        (metrics(b'{"update": ' + b"9" * 500 + b"}\n"), "1 damaged lines"),
        (metrics(b"[" * 200_000 + b"\n"), "1 damaged lines"),
        (("summary.json", b"[" * 200_000), "summary.json cannot be read"),
        (("summary.json", b"\xff"), "summary.json cannot be read"),
        (("summary.json", b'{"a": ' + b"[" * 50 + b"]" * 50 + b"}"), "nested more than 20 levels deep"),
        (("summary.json", b'{"a": NaN}'), "a number that is not finite"),
        (("summary.json", b'{"a": [{"b": 1e999}]}'), "a number that is not finite"),
        (
            metrics(b'{"update": 5, "validation_bound": 1e308}\n{"update": 6, "validation_bound": -1e308}\n'),
            "2 damaged",
        ),
        (
            metrics(b'{"update": 50, "validation_bound": -1}\n{"update": 100, "valid'),
            "ends at update 50, before the end",
        ),
        (metrics(b"{" + b",".join(b'"%d":1' % i for i in range(99)) + b',"update":1}\n'), "1 damaged lines"),
        (summary(updates="many"), "the field 'updates'"),
        (summary(best=[1]), "the field 'best'"),
        (summary(note=7), "the field 'note'"),
        (summary(evaluations={}), "the field 'evaluations'"),
        (summary(evaluations=[EVALUATION | {"seed": None}]), "the field 'evaluations'"),
        (summary(evaluations=[EVALUATION | {"negative_log_likelihood": 1e308}]), "the field 'evaluations'"),
        (summary(evaluations=[EVALUATION | {"active_units": 5}]), "the field 'evaluations'"),
        (summary(evaluations=[EVALUATION | {"error": "x"}]), "the field 'evaluations'"),
        (summary(stages=[{"updates": 5, "evaluations": [7]}]), "the field 'stages'"),
        (("config.json", b"[" * 200_000), "config.json cannot be read"),
        (("config.json", b'{"config": {"layers": [1e999]}}'), "config.json"),
        (("config.json", huge(num_samples=10**400)), "The field 'num_samples' must be an integer"),
        (config(image_shape=[10**9, 10**9]), "at most 67,108,864 pixels"),
    ],
)
def test_a_bad_run_is_listed_with_the_reason_and_costs_no_other(tmp_path, file, reason):
    run_called(tmp_path / "runs", "good", likelihood=91.25)
    bad = run_called(tmp_path / "runs", "bad")
    (bad / file[0]).write_bytes(file[1])
    text, page, (problem,) = write_report([tmp_path / "runs"], tmp_path / "report")
    assert reason in problem
    for document in (text.read_text(), page.read_text()):
        assert "91.25" in document
        assert "Could not be read" in document


def of_evaluations(**changes):
    def change(record):
        for evaluation in record["evaluations"]:
            evaluation.update(changes)

    return "summary.json", change


def of_lines(**changes):
    return "metrics.jsonl", lambda record: record.update(changes)


def noise(variance):
    common = {"num_samples": 2, "draws": 9, "update": 1000, "weights": "latest"}
    records = [
        {**common, "estimator": "vimco", "model_snr": 0.1, "model_variance": variance},
        {**common, "estimator": "ovis", "model_snr": 0.1},
    ]
    return "summary.json", lambda record: record.update(noise=records)


ODD = {
    "iwae": [of_evaluations(active_units=None)],
    "attention": [
        of_evaluations(error=None, error_of_one=None),
        of_evaluations(error=0.5),
        of_lines(validation_error=0.5),
    ],
    "estimators": [of_lines(processor_seconds=None), of_lines(update=5), noise(0.0), noise(None)],
    "table-1": [
        ("summary.json", lambda record: record.update(updates=2**62)),
        of_lines(update=2**62),
        of_lines(validation_bound=-1e99),
    ],
}


@pytest.mark.parametrize("study", ODD)
def test_what_no_run_writes_but_can_be_read_fails_no_report(tmp_path, study):
    """Fields that are null, missing, zero, repeated or far too large, a run in turn for each of them."""
    configs = STUDIES[study].adjusted(updates=1000, rates=[1e-3])[:14]
    for config, (name, change) in zip(configs, itertools.cycle(ODD[study]), strict=False):
        path = recorded_run(
            tmp_path / "runs", config, likelihood=91.25, num_samples=STUDIES[study].evaluation_samples or 1000
        )
        lines = (path / name).read_text().splitlines() if name.endswith("l") else [(path / name).read_text()]
        records = list(map(json.loads, lines))
        for record in records:
            change(record)
        (path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    text, _, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    assert "91.25" in text.read_text()


def test_a_tree_of_a_thousand_folders(tmp_path, capfd, monkeypatch):
    run_called(tmp_path, "good", likelihood=91.25)
    try:
        for _ in range(1300):
            monkeypatch.chdir(tmp_path if _ == 0 else "deep")
            Path("deep").mkdir()
        monkeypatch.undo()
        cli.main(["report", str(tmp_path), "--output", str(tmp_path / "report")])
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)  # Python's own way is recursive
    assert "cannot be listed" in capfd.readouterr().err
    assert "91.25" in (tmp_path / "report" / "results.md").read_text()


def test_a_link_that_cannot_be_followed_stops_no_report(tmp_path):
    recorded_run(tmp_path, RunConfig(data="binarized-mnist", updates=100))
    (tmp_path / "link").symlink_to("a" * 300)  # longer than a name may be
    runs, problems = collected([tmp_path])
    assert (len(runs), problems) == (1, [])


@pytest.mark.parametrize("kind", ["link", "text", "folder"])
def test_only_a_picture_is_published_as_one(tmp_path, kind):
    """A symbolic link would publish its target."""
    path = recorded_run(tmp_path / "runs", RunConfig(data="binarized-mnist", updates=100)) / "samples.png"
    elsewhere = tmp_path / "elsewhere.png"
    path.rename(elsewhere)
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "text":
        path.write_text("a password")
    else:
        path.mkdir()
    text, _, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    assert "is left out" in text.read_text()
    assert not (tmp_path / "report" / "figures" / "samples.png").exists()
