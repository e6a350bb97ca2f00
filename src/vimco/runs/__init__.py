"""A run directory: its configuration, its files, the session that trains in it, its observers and its pictures."""

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run, load
from vimco.runs.observer import Observer
from vimco.runs.session import Interrupted, resume, train

__all__ = ["Interrupted", "Observer", "Run", "RunConfig", "load", "resume", "train"]
