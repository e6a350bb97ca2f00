"""Several devices: the mesh that shares a batch, and functions that run on all of its devices."""

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from vimco.errors import UsageError
from vimco.samples import AXIS, Part

T = TypeVar("T")
MOST_DEVICES = 1024  # of one process


def mesh_of(devices: int) -> Mesh | None:
    """Return a mesh of this many devices of each process; None for a single one."""
    if devices < 1:
        raise UsageError(f"--devices must be positive; got {devices}.")
    if devices == jax.process_count() == 1:
        return None
    found = jax.local_devices()
    if devices > len(found):
        kind = found[0].platform
        more = ' More on a CPU, before anything is computed: jax.config.update("jax_num_cpu_devices", N).'
        cores = more if kind == "cpu" else ""
        raise UsageError(f"--devices {devices}: this process has {len(found)}, of the kind {kind}.{cores}")
    chosen = [device for process in range(jax.process_count()) for device in jax.local_devices(process)[:devices]]
    return Mesh(np.array(chosen), (AXIS,))


def offer_cpu_devices(number: int) -> None:
    """Divide the CPU into this many devices, if nothing has been computed yet; GPUs and TPUs are unaffected.

    A number that is already set, by JAX_NUM_CPU_DEVICES or XLA_FLAGS, is kept.
    """
    if number > MOST_DEVICES:
        raise UsageError(f"--devices must be at most {MOST_DEVICES:,}; got {number}.")
    flags = os.environ.get("XLA_FLAGS", "")
    is_set = jax.config.values["jax_num_cpu_devices"] > 0 or "host_platform_device_count" in flags
    if number > 1 and not is_set:
        with contextlib.suppress(RuntimeError):  # the devices are already initialised
            jax.config.update("jax_num_cpu_devices", number)


def refuse_uneven(batch_size: int, count: int) -> None:
    """Refuse a batch that cannot be divided equally, and name the numbers that can."""
    if batch_size % (4 * count) == 0:
        return
    below = batch_size // (4 * count) * 4 * count
    sizes = " or ".join(f"{size}" for size in (below, below + 4 * count) if size)
    numbers = [str(n) for n in range(1, batch_size // 4 + 1) if batch_size % (4 * n) == 0] or ["1"]
    raise UsageError(
        f"A batch of {batch_size} does not divide among {count} devices, each of which takes an equal share of every "
        f"quarter of it. Use --batch-size {sizes}, or {' or '.join(numbers)} devices."
    )


def replicated(tree: T, mesh: Mesh | None) -> T:
    """Return the tree with a copy of its arrays on every device of the mesh.

    The copies share no memory, since the loop donates that of a state; `jax.device_put` does not guarantee this.
    """
    if mesh is None:
        return tree
    everywhere = NamedSharding(mesh, PartitionSpec())

    def copied(array: jax.Array) -> jax.Array:
        if array.sharding == everywhere:
            return array
        values = np.asarray(array)
        return jax.make_array_from_callback(array.shape, everywhere, lambda _: values.copy())

    return _placed(tree, copied)


def on_one_device(tree: T, mesh: Mesh | None) -> T:
    """Return a replicated tree with its arrays on the first device of this process alone."""
    return tree if mesh is None else _placed(tree, lambda array: jax.numpy.asarray(np.asarray(array)))


def _placed(tree: T, place: Callable[[jax.Array], jax.Array]) -> T:
    """Return the tree with its arrays placed, keys by their data. A tracer, of an update that is only traced, stays."""

    def placed(leaf: Any) -> Any:
        if not eqx.is_array(leaf) or isinstance(leaf, jax.core.Tracer):
            return leaf
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return place(leaf)

    return jax.tree.map(placed, tree)


def on_every_device(function: Callable[..., Any], mesh: Mesh, *arguments: PyTree) -> Any:
    """Return function(part, *arguments), called on every device with its own part. The result must be the same on all.

    The compiler does not check that (`check_vma`), because it cannot analyse the custom derivatives of this package.
    """
    arrays, others = eqx.partition(arguments, eqx.is_array)
    not_arrays = []

    def on_one(arrays: PyTree) -> PyTree:
        result = function(Part(jax.lax.axis_index(AXIS), mesh.size), *eqx.combine(arrays, others))
        of_result, rest = eqx.partition(result, eqx.is_array)
        not_arrays.append(rest)
        return of_result

    spec = PartitionSpec()
    result = jax.shard_map(on_one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(arrays)
    return eqx.combine(result, not_arrays[-1])
