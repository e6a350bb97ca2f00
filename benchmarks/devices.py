"""`python -m benchmarks.devices K BATCH DEVICES [ADDRESS PROCESSES RANK]` prints milliseconds of an update, as JSON.

Of one process: CPU time, which other work on the machine disturbs little, wall time, and that of an exchange.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.subjects import updates
from vimco.samples import AXIS
from vimco.training.devices import mesh_of, on_every_device, replicated

LAYOUTS = {"1 device": (1, 1), "2 devices": (2, 1), "2 processes": (1, 2)}  # devices of a process, processes
NUMBERS = 475_584  # parameters of the paper's network
ROUNDS, REPEATS = 6, 10


def best(run: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return milliseconds of CPU and of wall time per repeat, each of the best round."""
    run()
    rounds = []
    for _ in range(ROUNDS):
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        rounds.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu_times, wall_times = zip(*rounds, strict=True)
    return {"cpu_ms": min(cpu_times) / repeats * 1e3, "ms": min(wall_times) / repeats * 1e3}


def exchange(mesh: Any) -> Callable[[], object]:
    """Return a call that sums a vector of as many numbers as parameters over the devices, ten times."""
    vector = replicated(jnp.ones(NUMBERS), mesh)

    @jax.jit
    def summed(vector: jax.Array) -> jax.Array:
        def on_one(_: Any, vector: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, REPEATS, lambda _, v: jax.lax.psum(v, AXIS) / mesh.size, vector)

        return on_every_device(on_one, mesh, vector)

    return lambda: jax.block_until_ready(summed(vector))


def device_records(K: int, batch: int) -> list[dict[str, Any]]:
    """Return the milliseconds of an update in each layout, and how much faster each could be at best.

    At best: with cores of its own for each process, and a free network.
    """
    records = []
    for name, (devices, processes) in LAYOUTS.items():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        words = [sys.executable, "-m", "benchmarks.devices", str(K), str(batch), str(devices)]
        running = [
            subprocess.Popen(
                words if processes == 1 else [*words, address, str(processes), str(rank)], stdout=subprocess.PIPE
            )
            for rank in range(processes)
        ]
        outputs = [process.communicate()[0].decode().splitlines()[-1] for process in running]
        record = {"kind": "devices", "K": K, "batch": batch, "layout": name, **json.loads(outputs[0])}
        first = records[0] if records else record
        record["ceiling"] = first["cpu_ms"] / record["cpu_ms"] * (1 if processes > 1 else devices)
        records.append(record)
    return records


def main(K: int, batch: int, devices: int, address: str | None = None, processes: int = 1, rank: int = 0) -> None:
    """Measure in this process, and print."""
    if devices > 1:
        jax.config.update("jax_num_cpu_devices", devices)
    if address is not None:
        jax.distributed.initialize(address, processes, rank)
    mesh = mesh_of(devices)
    run, _ = updates("generative", K, batch, 200, REPEATS, mesh=mesh)
    record = best(run, REPEATS)
    record["exchange_ms"] = 0.0 if mesh is None else best(exchange(mesh), REPEATS)["ms"]
    print(json.dumps(record))


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:4]]
    main(*numbers, *sys.argv[4:5], *map(int, sys.argv[5:7]))
