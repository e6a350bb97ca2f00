"""`python -m benchmarks.devices ROUNDS K BATCH DEVICES [ADDRESS PROCESSES RANK]` prints how long an update takes.

As JSON, in milliseconds, of one process: CPU time, which other work on the machine disturbs little, wall time, and both
of the update's exchange.
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
REPEATS = 10
LIMIT = 0.15  # largest share of the exchange in an update at K = 50, batch 192, on two devices of one process
LARGEST = (50, 192)


def best(run: Callable[[], object], number: int) -> dict[str, float]:
    """Return milliseconds of CPU and of wall time per repeat, each of the best of so many rounds."""
    run()
    rounds = []
    for _ in range(number):
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        rounds.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu_times, wall_times = zip(*rounds, strict=True)
    return {"cpu_ms": min(cpu_times) / REPEATS * 1e3, "ms": min(wall_times) / REPEATS * 1e3}


def exchange(mesh: Any, K: int, batch: int) -> Callable[[], object]:
    """Return a call that sums a vector of an update's length over the devices, ten times: gradient and estimate."""
    vector = replicated(jnp.ones(NUMBERS + 2 * K * batch), mesh)

    @jax.jit
    def summed(vector: jax.Array) -> jax.Array:
        def on_one(_: Any, vector: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, REPEATS, lambda _, v: jax.lax.psum(v, AXIS) / mesh.size, vector)

        return on_every_device(on_one, mesh, vector)

    return lambda: jax.block_until_ready(summed(vector))


def device_records(K: int, batch: int, rounds: int) -> list[dict[str, Any]]:
    """Return the milliseconds of an update in each layout, how much faster each could be at best, and the exchange.

    Of several processes, those of the slowest. At best: with cores of its own for each process and device, and a
    network of no cost.
    """
    records: list[dict[str, Any]] = []
    for name, (devices, processes) in LAYOUTS.items():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        words = [sys.executable, "-m", "benchmarks.devices", *map(str, (rounds, K, batch, devices))]
        running = [
            subprocess.Popen(
                words if processes == 1 else [*words, address, str(processes), str(rank)], stdout=subprocess.PIPE
            )
            for rank in range(processes)
        ]
        outputs = [process.communicate()[0].decode() for process in running]
        if any(process.returncode for process in running):
            raise RuntimeError(f"K = {K}, batch {batch}, {name}: a process failed; its messages are above.")
        lines = [next(line for line in output.splitlines() if line.startswith("{")) for output in outputs]
        each = [json.loads(line) for line in lines]  # the other lines are Gloo's
        slowest = {quantity: max(one[quantity] for one in each) for quantity in each[0]}
        record = {"kind": "devices", "K": K, "batch": batch, "layout": name, **slowest}
        first = records[0] if records else record
        record["ceiling"] = first["cpu_ms"] / record["cpu_ms"] * devices
        record["limit"] = LIMIT if (K, batch) == LARGEST and devices > 1 else None
        records.append(record)
    return records


def main(
    rounds: int, K: int, batch: int, devices: int, address: str | None = None, processes: int = 1, rank: int = 0
) -> None:
    """Measure in this process, and print."""
    if devices > 1:
        jax.config.update("jax_num_cpu_devices", devices)
    if address is not None:
        jax.distributed.initialize(address, processes, rank)
    mesh = mesh_of(devices)
    run, _ = updates("generative", K, batch, 200, REPEATS, mesh=mesh)
    record = best(run, rounds)
    if mesh is not None:
        of_exchange = best(exchange(mesh, K, batch), rounds)
        record |= {f"exchange_{name}": value for name, value in of_exchange.items()}
        record["exchange_share"] = max(of_exchange[name] / record[name] for name in of_exchange)
    print(json.dumps(record))


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:5]]
    main(*numbers, *sys.argv[5:6], *map(int, sys.argv[6:8]))
