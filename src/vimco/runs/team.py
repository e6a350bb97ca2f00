"""The processes that train one run together: what they agree on, and how an error in one is raised in all."""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils

from vimco.errors import UsageError

LOSSES = ("gloo", "nccl", "connection", "unavailable", "coordination", "heartbeat", "socket closed")
MOST_BYTES = 2_000  # of a message that goes to all processes


def is_lost_process(error: BaseException) -> bool:
    """Return whether an error of an exchange says that another process has ended."""
    return any(word in str(error).lower() for word in LOSSES)


class CommonError(UsageError):
    """An error that every process raises, so that all shut down together."""


class Team:
    """All processes of `jax.distributed`, or this one alone. The first one writes, the others only compute."""

    def __init__(self) -> None:
        self.rank, self.size = jax.process_index(), jax.process_count()
        numbers = [len(jax.local_devices(rank)) for rank in range(self.size)]
        if len(set(numbers)) > 1:
            raise CommonError(
                f"The {self.size} processes have different numbers of devices: {', '.join(map(str, numbers))}. Start "
                "all of them with the same --devices, on machines of the same kind."
            )

    @property
    def is_first(self) -> bool:
        """Return whether this process writes."""
        return self.rank == 0

    def gathered(self, number: float | int) -> list[float | int]:
        """Return every process's number, in order of rank. All processes must call this."""
        return [number] if self.size == 1 else multihost_utils.process_allgather(np.float32(number)).tolist()

    def from_first(self, tree: Any) -> Any:
        """Return the first process's arrays in the place of this one's: other processors may round differently."""
        if self.size == 1:
            return tree
        arrays, others = eqx.partition(tree, eqx.is_array)
        return eqx.combine(jax.tree.map(jax.numpy.asarray, multihost_utils.broadcast_one_to_all(arrays)), others)

    @contextlib.contextmanager
    def as_one(self) -> Iterator[None]:
        """Raise a UsageError or OSError of any process in all of them. Every process must call this."""
        message = ""
        try:
            yield
        except (UsageError, OSError) as error:
            if self.size == 1:
                raise
            message = str(error) or type(error).__name__
        for rank, text in enumerate(self._texts(message)):
            if text:
                raise CommonError(text if rank == self.rank else f"Process {rank}: {text}")

    def text_of_first(self, text: str) -> str:
        """Return the first process's text. All processes must call this."""
        return self._texts(text)[0]

    def require_same(self, **facts: str) -> None:
        """Refuse to begin where the processes differ in one of these facts."""
        for name, fact in facts.items():
            if len(set(self._texts(hashlib.sha256(fact.encode()).hexdigest()))) > 1:
                raise CommonError(
                    f"The {self.size} processes differ in their {name}: start all of them by the same "
                    "command, with the same versions and the same data."
                )

    def _texts(self, text: str) -> list[str]:
        if self.size == 1:
            return [text]
        content = np.frombuffer(text.encode()[:MOST_BYTES].ljust(MOST_BYTES, b"\0"), np.uint8)
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in multihost_utils.process_allgather(content)]
