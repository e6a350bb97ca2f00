"""Compare constraints.txt with a local copy of known vulnerabilities, without a network.

The copy is a folder or a zip file of records in OSV format, one JSON file each: the "all.zip" that OSV publishes for
PyPI, or a checkout of any database in that format. Prints the affected packages; the status is 1 if there are any.
"""

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version


def main(arguments: list[str] | None = None) -> int:
    """Print each known vulnerability of the pinned versions, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("advisories", type=Path, help="folder or zip file of OSV records")
    parser.add_argument("--constraints", type=Path, default=Path(__file__).parents[1] / "constraints.txt")
    options = parser.parse_args(arguments)
    if not options.advisories.exists():
        parser.error(f"{options.advisories} does not exist")
    versions = pinned(options.constraints.read_text())
    count, found = 0, []
    for record in records(options.advisories):
        count += 1
        found += affected(record, versions)
    if not count:
        parser.error(f"{options.advisories} holds no records: it should be a folder or a zip file of OSV's JSON files")
    print(*sorted(found), sep="\n", end="\n" if found else "")
    print(f"{len(versions)} packages compared with {count} records: {len(found)} known vulnerabilities.")
    return 1 if found else 0


def pinned(constraints: str) -> dict[str, Version]:
    """Return the version of each package in lines of the form name==version."""
    pairs = (line.split("#")[0].split("==") for line in constraints.splitlines() if "==" in line.split("#")[0])
    return {normal(name.strip()): Version(version.strip()) for name, version in pairs}


def normal(name: str) -> str:
    """Return the name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def records(advisories: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a folder, with its folders, or of a zip file."""
    if advisories.is_dir():
        for path in sorted(advisories.rglob("*.json")):
            yield json.loads(path.read_text(encoding="utf-8"))
    else:
        with zipfile.ZipFile(advisories) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    yield json.loads(archive.read(name))


def affected(record: dict[str, Any], versions: dict[str, Version]) -> Iterator[str]:
    """Yield a line for each pinned package that the record names, unless the record was withdrawn."""
    if record.get("withdrawn"):
        return
    for part in record.get("affected", []):
        package = part.get("package", {})
        name = normal(package.get("name", ""))
        if package.get("ecosystem") == "PyPI" and name in versions and includes(part, versions[name]):
            yield f"{name} {versions[name]}: {record['id']} {record.get('summary', '')}".rstrip()


def includes(part: dict[str, Any], version: Version) -> bool:
    """Return whether a version is listed, or lies in a range: at or after introduced, before fixed."""
    if str(version) in part.get("versions", []):
        return True
    return any(
        vulnerable(range_["events"], version)
        for range_ in part.get("ranges", [])
        if range_.get("type") == "ECOSYSTEM" and range_.get("events")
    )


def vulnerable(events: list[dict[str, str]], version: Version) -> bool:
    """Return the state after the last event that applies to the version. Events may be in any order."""
    state = False
    for at, kind in sorted((parse(value), kind) for event in events for kind, value in event.items()):
        if at < version or (at == version and kind != "last_affected"):
            state = kind == "introduced"
    return state


def parse(text: str) -> Version:
    """Return a version of an event. Those that are no versions count as 0, so that nothing vulnerable is missed."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


if __name__ == "__main__":
    sys.exit(main())
