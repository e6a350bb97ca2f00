"""The report of run directories: one document, written as Markdown and as a web page. Nothing here trains."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from vimco import __version__
from vimco.errors import UsageError
from vimco.files import read_file, write_file
from vimco.report.markdown import markdown
from vimco.report.page import html
from vimco.runs.config import MAX_UPDATES, words_of
from vimco.runs.directory import Run
from vimco.studies import STUDIES, Cell
from vimco.studies.cells import PAPER, in_words, variations
from vimco.studies.curves import distinct_curves, plot, validation_points
from vimco.studies.document import Commands, Document, Entry, Section, Table, Text, anchor, minus, short_count
from vimco.studies.paper.protocol import SOURCE
from vimco.studies.results import collected
from vimco.studies.study import train_command

LARGEST_REMARKS = 2**22  # bytes

INTRODUCTION = (
    f"Every number here was measured by the program vimco {__version__}, from the run directories listed at the end; "
    f"numbers marked as the paper's are quoted from {SOURCE} What was not run is said to be so."
)
OF_CLAIMS = (
    "Bounds are those of the validation set with the training K, the best up to the last update that all compared runs "
    "have reached. Likelihoods are compared after equally many updates only. One seed can mislead: small differences "
    "are no more than that."
)


def write_report(folders: Sequence[Path], output: Path, remarks: Path | None = None) -> tuple[Path, Path, list[str]]:
    """Write `results.md` with its figures, `runs.json`, and `index.html`, which needs no other file.

    `remarks` is a file of paragraphs that follow the first tables. Return the two documents and the problems in
    reading. The same runs and remarks give the same bytes.
    """
    runs, problems = collected(folders)
    if not runs:
        raise UsageError(
            " ".join([f"There is no run in {', '.join(map(str, folders))}: name folders that hold some.", *problems])
        )
    document = report(runs, problems, _paragraphs(remarks) if remarks else ())
    (output / "figures").mkdir(parents=True, exist_ok=True)
    for picture in document.pictures:
        write_file(output / picture.file, picture.content)
    files = {
        "results.md": markdown(document),
        "index.html": html(document),
        "runs.json": json.dumps({run.name: record(run) for run in runs}, indent=1) + "\n",
    }
    for name, text in files.items():
        write_file(output / name, text.encode())
    return output / "results.md", output / "index.html", problems


def report(runs: Sequence[Run], problems: Sequence[str] = (), remarks: Sequence[str] = ()) -> Document:
    """Return the report: for each data set the first tables, remarks and other studies; then claims and every run.

    A study that was not run on a data set is left out there, and listed once if it was run on none.
    """
    data_of = _data_titles(runs)
    names = sorted(set(data_of.values()), key=lambda name: (name != PAPER.data, name))
    front: list[Section] = []
    rest: list[Section] = []
    on = {name: [run for run in runs if data_of[run.path] == name] for name in names}
    shown = {study.name: [name for name in names if study.is_run(on[name])] or names[:1] for study in STUDIES.values()}
    for name in names:
        for study in STUDIES.values():
            if name in shown[study.name]:
                section = study.section(on[name])
                suffix = f" ({name})" if len(shown[study.name]) > 1 else ""
                (front if study.is_front else rest).append(replace(section, title=section.title + suffix))
    rest.append(_claims(on, shown))
    if remarks:
        front.append(Section("remarks", "Remarks", tuple(map(Text, remarks))))
    linked = {link for section in rest for link in section.links}  # a study may show runs that it does not plan
    others = [run for run in runs if not any(study.is_run([run]) for study in STUDIES.values())]
    if others := [run for run in others if anchor(run.name) not in linked]:
        rest.append(_other_runs(others))
    rest.append(_runs(runs, problems))
    notes = dict.fromkeys(f"{data_of[run.path]}: {note}" for run in runs if (note := run.summary().get("note", "")))
    introduction = (INTRODUCTION, f"Data: {', '.join(names)}.", *notes)
    title = "Variational inference for Monte Carlo objectives: results"
    return Document(title, introduction, tuple(_with_distinct_names(_without_repetitions([*front, *rest]))))


def _data_titles(runs: Sequence[Run]) -> dict[Path, str]:
    """Return what the data of each run are called: their name, with a part of the checksum if others have it too."""
    checksums: dict[str, set[str]] = {}
    for run in runs:
        checksums.setdefault(run.data["name"], set()).add(run.data["checksum"])
    return {
        run.path: name if len(checksums[name := run.data["name"]]) == 1 else f"{name}, {run.data['checksum'][:8]}"
        for run in runs
    }


def record(run: Run) -> dict[str, object]:
    """Return the record of a run for programs, without its curves."""
    return {
        "directory": run.path.resolve().name,
        "config": run.config.to_json(),
        "environment": run.environment,
        "data": run.data,
        "summary": run.summary(),
    }


def _paragraphs(file: Path) -> list[str]:
    """Return the paragraphs of a text, without its line breaks."""
    try:
        text = read_file(file, LARGEST_REMARKS).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The remarks cannot be read from {file} ({error}): name a text file in UTF-8.") from None
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _claims(on: Mapping[str, Sequence[Run]], shown: Mapping[str, Sequence[str]]) -> Section:
    """Return every claim with its verdict, from the runs `on` each data set on which its study is `shown`."""
    rows = []
    for study in STUDIES.values():
        for claim, name in product(study.claims, shown[study.name]):
            verdict = claim.check(on[name])
            place = f"{claim.place}; {name}" if len(shown[study.name]) > 1 else claim.place
            here = Entry(verdict.verdict, is_missing=verdict.verdict == "not yet")
            rows.append((Entry(claim.statement, place), here, Entry(verdict.evidence)))
    caption, headings = "What the papers say, and what was seen here", ("claim", "here", "by these numbers")
    table = Table(caption, headings, tuple(rows), prose=frozenset({0, 2}))
    return Section("claims", "The claims of the papers, one by one", (table, Text(OF_CLAIMS)))


def _other_runs(runs: Sequence[Run]) -> Section:
    """Return the validation bounds of runs that belong to no study, a curve each."""
    text = Text("These belong to none of the studies above.")
    curves = distinct_curves({run.name: validation_points(run) for run in runs})
    caption = "The bound on the validation set with the training K of each run, against updates."
    picture = [plot("other-runs", {"Other runs": curves}, "validation bound (nats)", caption)] if curves else []
    return Section("other-runs", "Other runs", (text, *picture))


def _runs(runs: Sequence[Run], problems: Sequence[str]) -> Section:
    headings = ("run", "model", "rate", "seed", "updates", "best validation bound", "negative log-likelihood")
    table = Table("Every run", headings, tuple(map(_row, runs)), prose=frozenset({0, 1, 6}))
    text = Text("Each run below opens to the commands that repeat it. Its full configuration is in runs.json.")
    unread = (Text(f"Could not be read: {problem}") for problem in problems)
    title = "Every run, and the commands that repeat it"
    return Section("runs", title, (*unread, table, text, *map(_commands, runs)))


def _row(run: Run) -> tuple[Entry, ...]:
    config, cell, best = run.config, Cell.of(run.config), run.best()
    departures = in_words(variations(config))
    return (
        Entry(run.name, anchor=anchor(run.name)),
        Entry(f"{cell.title}, K = {cell.num_samples}", "; ".join(filter(None, (config.model, departures)))),
        Entry(f"{config.learning_rate:g}"),
        Entry(str(config.seed)),
        Entry(f"{run.updates:,}", "" if run.is_finished else "not finished"),
        Entry(minus(best[1]), f"at {best[0]:,}") if best else Entry("none yet", is_missing=True),
        _likelihoods(run),
    )


def _likelihoods(run: Run) -> Entry:
    def kind(evaluation: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(evaluation[name] for name in ("split", "weights", "num_samples", "seed"))

    evaluations, ended = run.evaluations, run.summary().get("updates", 0)
    latest = {kind(e): e["update"] for e in sorted(evaluations, key=lambda e: e["update"])}
    present = [e for e in evaluations if e["update"] == latest[kind(e)] and (run.is_finished or e["update"] > ended)]
    measured = [(e, "") for e in present]
    measured += [(e, f", after {short_count(n)} updates") for n, stage in run.stages.items() for e in stage]
    if not measured:
        return Entry("not evaluated", is_missing=True)
    values = [f"{minus(e['negative_log_likelihood'])} ± {e['standard_error']:.2f}" for e, _ in measured]
    kinds = [f"{e['split']}, K = {e['num_samples']}, {e['weights']} weights{when}" for e, when in measured]
    rest = [f"{value} ({kind})" for value, kind in zip(values[1:], kinds[1:], strict=True)]
    return Entry(values[0], "; ".join([kinds[0], *rest]))


def _commands(run: Run) -> Commands:
    config = run.config
    if 0 < run.updates <= MAX_UPDATES:  # a damaged file may say more
        horizon = config.horizon if config.schedule != "constant" else None
        config = replace(config, updates=run.updates, epochs=None, minutes=None, schedule_updates=horizon)
    folder = f"runs/{run.path.resolve().name}"
    lines = [train_command(config, folder)]
    for e in run.evaluations:
        options = ("num_samples", "split", "weights", *(["seed"] if e["seed"] else []))
        lines.append(shlex.join(["vimco", "evaluate", folder, *words_of({name: e[name] for name in options})]))
    environment = ", ".join(f"{name} {value}" for name, value in run.environment.items())
    text = f"Data {run.data['name']}, checksum {run.data['checksum'][:12]}. {environment}."
    return Commands(run.name, text, tuple(dict.fromkeys(lines)))


def _without_repetitions(sections: Sequence[Section]) -> Iterator[Section]:
    """Return the sections, each paragraph that is said once in the first of them that has it."""
    said: set[str] = set()
    for section in sections:
        once = [block.text for block in section.blocks if isinstance(block, Text) and block.is_said_once]
        blocks = [block for block in section.blocks if not (isinstance(block, Text) and block.text in said)]
        said.update(once)
        yield replace(section, blocks=tuple(blocks))


def _with_distinct_names(sections: Iterable[Section]) -> Iterator[Section]:
    """Return the sections with distinct anchors and picture files, where several data sets share a study."""
    seen: Counter[str] = Counter()
    for section in sections:
        seen[section.anchor] += 1
        number = seen[section.anchor]
        yield section if number == 1 else section.renamed(f"-{number}")
