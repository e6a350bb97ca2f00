"""Print the packages that vimco depends on, with versions and licences, for docs/reference/dependencies.md."""

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

HEAD = """# Dependencies

The packages that `pip install .` installs, directly or indirectly, with the versions that the tests were run with.
`python scripts/licences.py > docs/reference/dependencies.md` updates the list; `make audit` compares `constraints.txt`
with the published vulnerabilities, and `make audit ADVISORIES=all.zip` with a local copy of the OSV database for PyPI.

| package | version | licence |
|---|---|---|"""


def required(name: str, seen: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """Return the package and all its dependencies, without extras."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        return
    seen.add(key)
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:  # needed on another system only
        return
    yield distribution
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement:
            yield from required(name_in(requirement), seen)


def name_in(requirement: str) -> str:
    """Return the name of the required package."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def licence(metadata: importlib.metadata.PackageMetadata) -> str:
    """Return the SPDX name of the licence if there is one, else the package's own words."""
    classifiers = [c.rpartition(" :: ")[2] for c in metadata.get_all("Classifier", []) if c.startswith("License ::")]
    words = metadata.get("License-Expression") or "; ".join(classifiers) or metadata.get("License") or "unknown"
    return words.splitlines()[0]


def main() -> None:
    """Print the page."""
    print(HEAD)
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    seen: set[str] = set()
    found = [d for requirement in project["dependencies"] for d in required(name_in(requirement), seen)]
    for distribution in sorted(found, key=lambda d: d.metadata["Name"].lower()):
        print(f"| {distribution.metadata['Name']} | {distribution.version} | {licence(distribution.metadata)} |")


if __name__ == "__main__":
    main()
