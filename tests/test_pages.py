"""The documentation is correct: its Python is run, its commands are parsed, its options exist."""

import argparse
import copy
import re
import runpy
import shlex
import tomllib

import pages
import pytest
import tyro

import vimco
from vimco.cli.program import SYNTAX, Command, parser
from vimco.estimators import ESTIMATORS

MAKEFILE = (pages.ROOT / "Makefile").read_text()
EXTRAS = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
LANGUAGES = {"python", "sh", "text", "json", "js", "yaml", "py"}  # py: a whole file, which has a test of its own
OF_ALL_COMMANDS = {"--help", "--version"}


@pages.with_python(None)
def test_python_runs(page, library, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.make_small(monkeypatch)
    monkeypatch.setattr("vimco.estimators.estimator.ESTIMATORS", copy.copy(ESTIMATORS))
    for block, printed in pages.run(page, library):
        pages.assert_same_output(printed, block.text)


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_every_block_says_what_it_is(page):
    assert {block.language for block in pages.blocks(page)} <= LANGUAGES


def commands():
    for page in pages.PAGES:
        for block in pages.blocks(page):
            if block.language == "sh":
                for line in block.text.replace("\\\n", " ").splitlines():
                    if words := shlex.split(line, comments=True):
                        yield pytest.param(words, id=f"{pages.name(page)}: {' '.join(words)}")


@pytest.mark.parametrize("words", list(commands()))
def test_commands_exist(words):
    while "=" in words[0]:  # variables of the environment
        words = words[1:]
    if "--plugin" in words:
        del words[(place := words.index("--plugin")) : place + 2]
    match words:
        case ["vimco", *arguments] if arguments and not {"--help", "--version"} & set(arguments):
            tyro.cli(Command, prog="vimco", args=arguments, config=SYNTAX)
        case ["vimco", *arguments]:
            pass
        case ["make", target]:
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
        case ["pip", "install", *targets]:
            for extra in re.findall(r"\[(.*?)\]", " ".join(targets)):
                assert set(extra.split(",")) <= EXTRAS.keys()
        case ["python", "-m", module, *_]:
            path = pages.ROOT / module.replace(".", "/")
            assert (path / "__main__.py").exists() or path.with_suffix(".py").exists()
        case ["python", script, *_]:
            assert (pages.ROOT / script).exists()
        case ["mpirun", "sh", "-c", command]:
            test_commands_exist(shlex.split(re.sub(r"\$\w+", "2", command)))  # with numbers for variables
        case _:
            assert words[0] in {"tensorboard", "git", "cd", "ls", ".", "sbatch", "srun", "dask"}, words


def options(command: argparse.ArgumentParser) -> dict[str, set[str]]:
    """Return the options of each command, by its name."""
    own = {name for action in command._actions for name in action.option_strings}
    found = {command.prog: own}
    for action in command._actions:
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                found |= options(inner)
    return found


OPTIONS = options(parser())


def test_every_command_explains_plugins():
    commands = [name for name in OPTIONS if not any(other.startswith(f"{name} ") for other in OPTIONS)]
    assert {"vimco train", "vimco report", "vimco data fetch"} <= set(commands)
    assert all("--plugin" in OPTIONS[name] for name in commands)


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_options_in_the_text_exist(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    every = set.union(*OPTIONS.values())
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        if code.startswith("vimco "):
            words = [word for word in code.split() if re.fullmatch(r"[a-z-]+", word)]
            depth = max(depth for depth in (1, 2, 3) if " ".join(words[:depth]) in OPTIONS)
            name = " ".join(words[:depth])
            assert depth > 1 or "COMMAND" in code or "--" in code, code
            given = set(re.findall(r"--[a-z][a-z-]*", code))
            assert given <= (OPTIONS[name] | OF_ALL_COMMANDS), code
        elif code.startswith("--"):
            assert code.split()[0].split("=")[0].rstrip(",.") in every | OF_ALL_COMMANDS, code


def test_signal_to_noise_ratios_are_those_of_the_script(float64):
    """Three rows of the first table of the page on estimators, with K = 2, and the table of K = 1; the rest is slow."""
    script = runpy.run_path(str(pages.ROOT / "scripts" / "exact_variances.py"))
    _, toy, parameters = next(script["toys"]())
    text = (pages.ROOT / "docs" / "which-estimator.md").read_text()
    for name in ("naive", "VIMCO", "RWS (wake), centred"):
        shown = re.search(rf"^\| {re.escape(name)} \| ([\d.]+) \|", text, re.MULTILINE)
        ratio = script["signal_to_noise"](toy, script["ESTIMATORS"][name](toy, 2), 2, parameters)
        assert f"{ratio:.2f}" == shown[1]
    for line in script["table_of_one_sample"]():
        assert line in text.splitlines()


def test_the_reference_has_every_public_name():
    reference = " ".join(page.read_text() for page in (pages.ROOT / "docs" / "reference").glob("*.md"))
    shown = set(" ".join(re.findall(r"```\{api\} ([^\n]*)", reference)).split())
    assert set(vimco.__all__) <= shown
