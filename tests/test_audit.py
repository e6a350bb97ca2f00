"""The comparison of constraints.txt with a local copy of known vulnerabilities (scripts/audit.py)."""

import json
import runpy
import zipfile
from pathlib import Path

import pytest

audit = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "audit.py"))


def record(events=None, name="Some_Package", **more):
    """Return a record in OSV format, of a package that `constraints` pins to 2.5."""
    ranges = [{"type": "ECOSYSTEM", "events": events}] if events else []
    part = {"package": {"ecosystem": "PyPI", "name": name}, "ranges": ranges, **more.pop("part", {})}
    return {"id": "X-1", "summary": "Reads too much", "affected": [part], **more}


@pytest.fixture
def constraints(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text("# a remark == of words\nsome.package==2.5  # pinned\nother==1.0\n")
    return path


def run(constraints, *advisories, packed=False):
    """Compare with the records, in a folder or a zip file, and return the exit status."""
    folder = constraints.parent / "advisories"
    (folder / "deeper").mkdir(parents=True)
    for i, advisory in enumerate(advisories):
        (folder / "deeper" / f"{i}.json").write_text(json.dumps(advisory))
    if packed:
        with zipfile.ZipFile(constraints.parent / "all.zip", "w") as archive:
            for path in folder.rglob("*.json"):
                archive.write(path, path.name)
        folder = constraints.parent / "all.zip"
    return audit["main"]([str(folder), "--constraints", str(constraints)])


@pytest.mark.parametrize(
    ("events", "vulnerable"),
    [
        ([{"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "2.5"}], False),
        ([{"introduced": "0"}, {"fixed": "2.5.1"}], True),
        ([{"introduced": "2.5"}, {"fixed": "2.10"}], True),
        ([{"introduced": "2.6"}], False),
        ([{"introduced": "0"}, {"last_affected": "2.5"}], True),
        ([{"introduced": "0"}, {"last_affected": "2.4"}], False),
        ([{"fixed": "1.1"}, {"introduced": "2.4"}, {"introduced": "1.0"}, {"fixed": "3"}], True),
        ([{"introduced": "1.0"}, {"fixed": "1.1"}, {"introduced": "2.6"}], False),
        ([{"introduced": "0"}, {"fixed": "no version"}], True),
    ],
)
def test_a_version_within_a_range_is_found(constraints, events, vulnerable, capsys):
    """Ranges begin at introduced and end before fixed or after last_affected; 2.10 is after 2.5."""
    assert run(constraints, record(events)) == vulnerable
    assert ("some-package 2.5: X-1 Reads too much" in capsys.readouterr().out) == vulnerable


def test_listed_withdrawn_and_other_packages(constraints, capsys):
    """A version may be listed; withdrawn records, other packages and other ecosystems do not count."""
    everything = [{"introduced": "0"}]
    listed = record(part={"versions": ["2.4", "2.5"]})
    withdrawn = record(everything, withdrawn="2026-01-01T00:00:00Z")
    unused = record(everything, name="unused")
    npm = record(everything)
    npm["affected"][0]["package"]["ecosystem"] = "npm"
    assert run(constraints, listed, withdrawn, unused, npm, packed=True) == 1
    assert "2 packages compared with 4 records: 1 known vulnerabilities." in capsys.readouterr().out


def test_a_copy_without_records_is_an_error(constraints, capsys):
    """An empty folder must not look like a clean result."""
    with pytest.raises(SystemExit, match="2"):
        run(constraints)
    assert "holds no records" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        audit["main"]([str(constraints.parent / "nowhere")])
