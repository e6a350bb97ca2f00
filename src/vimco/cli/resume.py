"""The command `vimco resume`: parse, call, print."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from vimco.cli.layout import Layout
from vimco.cli.options import Plugin
from vimco.cli.sample import OneRun
from vimco.cli.train import start_again, train_with_display
from vimco.runs import session


@dataclass(frozen=True)
class Resume:
    """Resume a run that was stopped, killed or has ended; the same as `vimco train --resume RUN`.

    A budget replaces the run's own, and counts from the run's beginning.
    """

    run: OneRun
    """A run directory."""
    updates: int | None = None
    """Stop after this many updates."""
    epochs: float | None = None
    """Stop after this many passes over the training set."""
    minutes: float | None = None
    """Stop after this many minutes of training."""
    layout: Annotated[Layout, tyro.conf.OmitArgPrefixes] = field(default_factory=Layout)
    plugin: Plugin = None

    def __call__(self) -> None:
        """Resume the run, and print its results."""
        budget = {"updates": self.updates, "epochs": self.epochs, "minutes": self.minutes}
        devices = self.layout.devices
        with self.layout.joined("resume", start_again(self.run)):
            train_with_display(lambda display: session.resume(self.run, display, devices=devices, **budget))
