"""From run directories to a report: one document, written as Markdown and as a web page. Nothing here trains."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vimco import __version__
from vimco.errors import UsageError
from vimco.report.markdown import markdown
from vimco.report.page import html
from vimco.runs.store import write_atomically
from vimco.studies import STUDIES, Cell
from vimco.studies.document import Block, Commands, Document, Entry, Picture, Section, Table, Text
from vimco.studies.paper import quoted
from vimco.studies.paper.claims import claims_section
from vimco.studies.paper.curves import all_of, drawn_by
from vimco.studies.paper.sections import study_section, title_of_cell
from vimco.studies.paper.tables import anchor, minus, short_count
from vimco.studies.results import Result, collected
from vimco.studies.study import command, variations

INTRODUCTION = (
    f"Every number here was measured by the program vimco {__version__}, from the run directories listed at the end; "
    "numbers marked as the paper's are quoted from " + quoted.SOURCE,
    "What was not run is said to be so.",
)
OF_SAMPLES = "Test images, their reconstructions, and below them probabilities of pixels given draws from the model."


def write_report(folders: Sequence[Path], output: Path, remarks: Path | None = None) -> tuple[Path, Path, list[str]]:
    """Writes `results.md` with its figures, `runs.json`, and `index.html`, which needs no other file.

    `remarks` is a file of paragraphs that come first. Returns the two documents and what could not be read. The same
    runs and remarks give the same bytes.
    """
    results, problems = collected(folders)
    if not results:
        raise UsageError(
            " ".join([f"There is no run in {', '.join(map(str, folders))}: name folders that hold some.", *problems])
        )
    document = report(results, problems, _paragraphs(remarks) if remarks else ())
    (output / "figures").mkdir(parents=True, exist_ok=True)
    for picture in document.pictures:
        write_atomically(output / picture.file, picture.content)
    files = {
        "results.md": markdown(document),
        "index.html": html(document),
        "runs.json": json.dumps({result.name: record(result) for result in results}, indent=1) + "\n",
    }
    for name, text in files.items():
        write_atomically(output / name, text.encode())
    return output / "results.md", output / "index.html", problems


def report(results: Sequence[Result], problems: Sequence[str] = (), remarks: Sequence[str] = ()) -> Document:
    """The remarks, if any, then sections for each study and data set, then for every run."""
    names = sorted({result.run.data["name"] for result in results}, key=lambda name: (name != quoted.DATA, name))
    sections = [Section("remarks", "Remarks", tuple(map(Text, remarks)))] if remarks else []
    for name in names:
        on_it = [result for result in results if result.run.data["name"] == name]
        parts = [*(study_section(study, on_it) for study in STUDIES.values()), *_samples(on_it), claims_section(on_it)]
        sections += [replace(part, title=f"{part.title} ({name})") for part in parts] if len(names) > 1 else parts
    others = [result for result in results if not _belongs(result)]
    if others:
        sections.append(Section("other-runs", "Other runs", tuple(_others(others))))
    sections.append(Section("runs", "Every run, and the commands that repeat it", tuple(_runs(results, problems))))
    introduction = (*INTRODUCTION, f"Data: {', '.join(names)}.", *_notes(results))
    return Document("Variational inference for Monte Carlo objectives: results", introduction, _told_apart(sections))


def record(result: Result) -> dict[str, object]:
    """What is known of a run, without its curves, for programs to read."""
    run = result.run
    return {
        "config": run.config.to_json(),
        "environment": run.environment,
        "data": run.data,
        "summary": result.summary,
    }


def _paragraphs(file: Path) -> list[str]:
    """The paragraphs of a text, without its line breaks."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The remarks cannot be read from {file} ({error}): name a text file in UTF-8.") from None
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _belongs(result: Result) -> bool:
    cell = Cell.of(result.run.config)
    return not variations(result.run.config) and any(cell in study.cells for study in STUDIES.values())


def _notes(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(note for result in results if (note := result.summary.get("note", ""))))


def _samples(results: Sequence[Result]) -> list[Section]:
    """Draws from the generative model with the best likelihood, or before evaluations the best bound."""
    cells = STUDIES["table-1"].cells
    candidates = [r for r in results if _belongs(r) and Cell.of(r.run.config) in cells and r.best() is not None]
    if not candidates:
        return []

    def quality(result: Result) -> tuple[float, float]:
        evaluation = result.evaluation(STUDIES["table-1"].evaluation_samples or 0)
        return (
            -evaluation["negative_log_likelihood"] if evaluation else float("-inf"),
            (result.best() or (0, float("-inf")))[1],
        )

    blocks = drawn_by(max(candidates, key=quality), "samples", OF_SAMPLES)
    return [Section("samples", "Samples of the best generative model", tuple(blocks))]


def _others(results: Sequence[Result]) -> list[Block]:
    return [Text("These belong to none of the studies above."), *all_of(results, "other-runs")]


def _runs(results: Sequence[Result], problems: Sequence[str]) -> list[Block]:
    headings = ("run", "model", "rate", "seed", "updates", "best validation bound", "negative log-likelihood")
    blocks: list[Block] = [
        Table("Every run", headings, tuple(map(_row, results)), prose=frozenset({0, 1, 6})),
        Text("Each run below opens to its commands and its full configuration; runs.json has them for programs."),
        *map(_commands, results),
    ]
    return [*blocks, *(Text(f"Could not be read: {problem}") for problem in problems)]


def _row(result: Result) -> tuple[Entry, ...]:
    config = result.run.config
    departures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in variations(config).items())
    layers = "-".join(map(str, config.layers))
    best = result.best()
    return (
        Entry(result.name, anchor=anchor(result)),
        Entry(title_of_cell(Cell.of(config)), "; ".join(filter(None, (f"{config.task} {layers}", departures)))),
        Entry(f"{config.learning_rate:g}"),
        Entry(str(config.seed)),
        Entry(f"{result.updates:,}", "" if result.is_finished else "not finished"),
        Entry(minus(best[1]), f"at {best[0]:,}") if best else Entry("none yet", is_missing=True),
        _likelihoods(result),
    )


def _likelihoods(result: Result) -> Entry:
    measured = [(e, "") for e in result.evaluations]
    measured += [(e, f", after {short_count(n)} updates") for n, stage in result.stages.items() for e in stage]
    if not measured:
        return Entry("not evaluated", is_missing=True)
    values = [f"{minus(e['negative_log_likelihood'])} ± {e['standard_error']:.2f}" for e, _ in measured]
    kinds = [f"{e['split']}, K = {e['num_samples']}, {e['weights']} weights{when}" for e, when in measured]
    rest = [f"{value} ({kind})" for value, kind in zip(values[1:], kinds[1:], strict=True)]
    return Entry(values[0], "; ".join([kinds[0], *rest]))


def _commands(result: Result) -> Commands:
    run, config = result.run, result.run.config
    if result.updates:
        horizon = config.horizon if config.schedule == "cosine" else config.schedule_updates
        config = replace(config, updates=result.updates, epochs=None, minutes=None, schedule_updates=horizon)
    folder = f"runs/{run.path.name}"
    lines = [command(config, folder)]
    for e in result.evaluations:
        options = ["num_samples", "split", "weights", *(["seed"] if e["seed"] else [])]
        words = [word for name in options for word in (f"--{name.replace('_', '-')}", str(e[name]))]
        lines.append(shlex.join(["vimco", "evaluate", folder, *words]))
    environment = ", ".join(f"{name} {value}" for name, value in run.environment.items())
    text = f"Data {run.data['name']}, checksum {run.data['checksum'][:12]}. {environment}."
    return Commands(result.name, text, tuple(lines), json.dumps(run.config.to_json(), indent=1))


def _told_apart(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Gives each section an anchor, and each picture a file, of its own, where several data sets share a study."""
    seen: dict[str, int] = {}
    apart = []
    for section in sections:
        seen[section.anchor] = seen.get(section.anchor, 0) + 1
        suffix = f"-{seen[section.anchor]}" if seen[section.anchor] > 1 else ""
        blocks = [replace(b, name=b.name + suffix) if isinstance(b, Picture) else b for b in section.blocks]
        apart.append(replace(section, anchor=section.anchor + suffix, blocks=tuple(blocks)))
    return tuple(apart)
