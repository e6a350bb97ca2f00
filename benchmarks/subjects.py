"""The timed work: updates and evaluations of the paper's models on random bits."""

import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import vimco
from vimco.runs.experiment import optimizer
from vimco.samples import Examples, Keys, Model, samples_for
from vimco.training.devices import replicated
from vimco.training.evaluation import evaluate
from vimco.training.loop import Trainer


def examples(task: str, number: int = 50_000) -> Examples:
    """Return images with as many pixels on as in MNIST."""
    images = jnp.asarray(np.random.default_rng(1).random((number, 784)) < 0.13, jnp.uint8)
    return Examples(images) if task == "generative" else Examples(images[:, 392:], images[:, :392])


def mean(size: int) -> jax.Array:
    """Return the mean of the data, of explicit type: with a weak one every update would be compiled twice."""
    return jnp.full(size, 0.13, jnp.result_type(float))


def model(task: str, width: int, slice_size: int | None = None) -> vimco.SigmoidBeliefNetwork:
    """Return the three-layer model of a task: `generative`, `structured`, or `structured, prior`."""
    key, layers = jax.random.key(0), (width,) * 3
    if task == "generative":
        return vimco.generative_sbn(key, layers, mean(784), slice_size=slice_size)
    proposal = "prior" if task == "structured, prior" else "learned"
    means = mean(392), mean(392)
    return vimco.structured_sbn(key, layers, *means, proposal=proposal, slice_size=slice_size)


def is_possible(estimator: str, model: Model, batch: vimco.Batch, K: int) -> bool:
    """Return whether an estimator takes the samples of this model. Nothing is computed."""
    key = jax.random.key(0)

    def estimate() -> vimco.Estimate:
        named = vimco.named_estimator(estimator, key, mean(784))
        return named(samples_for(model, named.needs, Keys(key, key, key), batch, K), batch)

    try:
        eqx.filter_eval_shape(estimate)
    except vimco.UsageError:
        return False
    return True


def updates(
    task: str,
    K: int,
    batch: int,
    width: int,
    repeats: int,
    estimator: str = "vimco",
    slice_size: int | None = None,
    mesh: Mesh | None = None,
    changed: Callable[[vimco.SigmoidBeliefNetwork], Model] = lambda model: model,
) -> tuple[Callable[[], None], float]:
    """Return a call that does `repeats` updates, and the seconds to build and compile the first.

    `changed` may put another model in the place of the package's.
    """
    data = examples(task)
    key = jax.random.key(0)
    start = time.perf_counter()
    trainer = Trainer(
        optimizer=optimizer(vimco.RunConfig()),
        num_samples=K,
        batch_size=batch,
        averaging=None,
        keys=Keys(key, key, key),
        key_of_order=key,
        mesh=mesh,
    )
    named = vimco.named_estimator(estimator, key, mean(784))
    state = [trainer.initial_state(changed(model(task, width, slice_size)), named, data)]
    order = trainer.epoch_order(data, 0)
    trainer, data, order, state = replicated((trainer, data, order, state), mesh)

    def advance(number: int) -> None:
        # All epochs use the same order: the time does not depend on the examples.
        state[0] = jax.block_until_ready(trainer.advance(state[0], data, order, number))

    advance(1)
    return lambda: advance(repeats), time.perf_counter() - start


def evaluations(task: str, K: int, number: int) -> Callable[[], None]:
    """Return a call that evaluates this many examples with K samples each."""
    data, trained = examples(task, number), model(task, 200)
    return lambda: evaluate(trained, data, jax.random.key(1), K)
