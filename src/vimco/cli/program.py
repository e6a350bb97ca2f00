"""The command line: parse, call, print."""

import contextlib
import dataclasses
import io
import shlex
import signal
import sys
import threading
import warnings
from typing import Annotated, Any, cast

import tyro

from vimco import Interrupted, UsageError, __version__
from vimco.cli.data import Data
from vimco.cli.estimators import Estimators
from vimco.cli.evaluate import Evaluate
from vimco.cli.layout import Layout
from vimco.cli.noise import Noise
from vimco.cli.page import Page
from vimco.cli.report import Report
from vimco.cli.sample import Sample
from vimco.cli.study import RunStudy
from vimco.cli.terminal import err, give_up_closed_streams, labelled, message_of, note, out
from vimco.cli.train import Resume, Train, print_named_options, refuse_changes
from vimco.errors import printable
from vimco.plugins import load_plugin, plugin_arguments
from vimco.runs.recipes import named_recipe

Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Noise, tyro.conf.subcommand("noise")]
    | Annotated[Sample, tyro.conf.subcommand("sample")]
    | Annotated[Page, tyro.conf.subcommand("page")]
    | Annotated[RunStudy, tyro.conf.subcommand("study")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Estimators, tyro.conf.subcommand("estimators")]
)
SYNTAX = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.DisallowNone)


OVERVIEW = """\
Train models with discrete latent variables by multi-sample bounds, and compare gradient estimators.

  vimco train                     train a model: the paper's, on the MNIST that comes with the package
  vimco resume RUN                resume a run that was stopped or killed, or extend one that has ended
  vimco evaluate RUN [RUN ...]    negative log-likelihood, with standard errors; with several runs, paired comparisons
  vimco noise RUN                 signal-to-noise ratio of every estimator's gradient at the run's parameters
  vimco sample RUN                a picture of samples and reconstructions, or of completions
  vimco page RUN                  a web page with the model inside: it completes the digit that you draw
  vimco study [NAME]              a table or figure of the paper, computed; without a name, the list of them
  vimco report FOLDER             tables and figures of all runs in a folder, as a page and as Markdown
  vimco estimators [NAME ...]     the gradient estimators, and the options of each
  vimco data list                 the data sets
  vimco data fetch NAME           fetch a published data set, from the network or a folder

Some first steps:

  vimco train --num-samples 5 --minutes 2 --output runs/first
  vimco train --task structured --num-samples 20 --layers 200 200
  vimco train --estimator nvil --num-samples 1 --data binarized-mnist --updates 200000

--plugin FILE_OR_MODULE, with any command, imports your own estimators, models, data sets and studies first.
vimco COMMAND --help explains a command's options; vimco --version gives the version.
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the program `vimco`. Exit with status 2 after a user's mistake, and with 130 or 143 after a signal."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the terminal has not is no reason to stop
    try:
        _call(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # also one during the printing of a message
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        err.print("Stopped.")
        sys.exit(128 + signal.SIGINT)


def _call(arguments: list[str]) -> None:
    warnings.showwarning = lambda message, *_args, **_options: note(str(message))
    try:
        arguments = _without_plugins(arguments)
        if arguments in ([], ["-h"], ["--help"]):
            out.print(OVERVIEW, end="")
        elif arguments == ["--version"]:
            out.print(f"vimco {__version__}")
        else:
            command = _parsed(arguments)
            if isinstance(command, Train) and command.resume is not None:
                refuse_changes(command, command.resume, arguments)
            command()
    except Interrupted as interruption:
        layout = getattr(command, "layout", Layout()).words
        again = shlex.join(["vimco", *plugin_arguments(), "resume", str(interruption.run.path), *layout])
        err.print(f"{interruption} Resume with: {again}")
        sys.exit(128 + interruption.signal_number)
    except BrokenPipeError:  # the output pipe was closed, as with `vimco ... | head`
        give_up_closed_streams()
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        message = message_of(error)
        if message is None:
            raise
        give_up_closed_streams()
        err.print(labelled("Error:", "red", message))
        sys.exit(2)


def _parsed(arguments: list[str]) -> Any:
    """Return the command. The options of a recipe come first: the last word on an option counts."""
    try:
        command = _parsed_words(arguments)
    except SystemExit as end:
        if arguments[0] == "train" and not end.code:  # the help was printed
            print_named_options(arguments)
        raise
    if isinstance(command, Train) and command.recipe is not None:
        recipe = named_recipe(command.recipe)
        command = _parsed_words([arguments[0], *recipe.words, *arguments[1:]])
        if recipe.goes_on and command.resume is None and command.config.init_from is None:
            raise UsageError(
                f"The recipe {command.recipe} goes on from the weights of a long training: name its run by --init-from."
            )
        return dataclasses.replace(command, config=recipe.completed(command.config))
    return command


def _parsed_words(words: list[str]) -> Any:
    """Return the command of these words. The parser repeats words that it does not know as they are, so that the
    control characters in a file's name would reach the terminal: they are then printed as escapes."""
    if printable("".join(words)) == "".join(words):
        return tyro.cli(Command, prog="vimco", args=words, config=SYNTAX)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            return tyro.cli(Command, prog="vimco", args=words, config=SYNTAX)
    finally:
        err.print(printed.getvalue(), end="")


def _without_plugins(arguments: list[str]) -> list[str]:
    """Import the named plugins, so that the parser knows their names; return the other arguments."""
    others, words = [], iter(arguments)
    for word in words:
        option, has_value, value = word.partition("=")
        if option != "--plugin":
            others.append(word)
            continue
        name = value if has_value else next(words, "")
        if not name:
            raise UsageError("--plugin needs the name of a Python file or module.")
        load_plugin(name)
    return others


def parser() -> Any:
    """Return the argparse parser of all commands, from which the reference is generated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # tyro has no other way to return it
        return tyro.extras.get_parser(cast(type, Command), prog="vimco", config=SYNTAX)
