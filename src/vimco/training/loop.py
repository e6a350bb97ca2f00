"""One update, and the compiled loop of many. No files, no printing."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from vimco.errors import UsageError
from vimco.estimators import Estimator
from vimco.models.kernels.randomness import fold_in
from vimco.parameters import partition
from vimco.samples import Estimate, Examples, Keys, Model, Part, samples_for
from vimco.training.compilation import compiled
from vimco.training.devices import on_every_device, refuse_uneven, replicated


class Totals(eqx.Module):
    """Sums over the updates since the last line of metrics."""

    count: Int[Array, ""]
    bound: Float[Array, ""]
    squared_signal: Float[Array, ""]
    effective_sample_size: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    norm_count: Int[Array, ""]  # updates whose gradient was measured
    objective: Float[Array, ""] | None = None  # what is ascended, where that is not the bound

    @classmethod
    def zero(cls, has_objective: bool = False) -> "Totals":
        """Return the sums of no updates."""
        return cls(  # separate arrays, since the memory of a state is donated array by array
            count=jnp.zeros((), jnp.int32),
            bound=jnp.zeros(()),
            squared_signal=jnp.zeros(()),
            effective_sample_size=jnp.zeros(()),
            gradient_norm=jnp.zeros(()),
            norm_count=jnp.zeros((), jnp.int32),
            objective=jnp.zeros(()) if has_objective else None,
        )

    def plus(self, estimate: Estimate, gradient: PyTree) -> "Totals":
        """Return the sums with one more update, which followed this gradient of the model.

        The norm of the gradient costs a pass over all parameters, so it is computed in one update of fifty.
        """
        measure = self.count % 50 == 0
        dtype = self.gradient_norm.dtype  # that of the parameters may be another
        norm = jax.lax.cond(measure, lambda g: _norm(g).astype(dtype), lambda _: jnp.zeros((), dtype), gradient)
        return Totals(
            self.count + 1,
            self.bound + jnp.mean(estimate.bound),
            self.squared_signal + estimate.signal_rms**2,
            self.effective_sample_size + jnp.mean(estimate.effective_sample_size),
            self.gradient_norm + norm,
            self.norm_count + measure,
            None if estimate.objective is None else jnp.asarray(self.objective) + jnp.mean(estimate.objective),
        )

    def averages(self) -> dict[str, float]:
        """Return the averages over these updates; for the signal, the root mean square (supplement C)."""
        n = max(int(self.count), 1)
        return {
            "train_bound": float(self.bound) / n,
            **({} if self.objective is None else {"train_objective": float(self.objective) / n}),
            "signal_rms": (float(self.squared_signal) / n) ** 0.5,
            "effective_sample_size": float(self.effective_sample_size) / n,
            "gradient_norm": float(self.gradient_norm) / max(int(self.norm_count), 1),
        }


class TrainingState(eqx.Module):
    """Everything that an update reads and writes. The next state depends on it alone."""

    model: Any
    estimator: Estimator
    optimizer_state: PyTree
    average: PyTree | None  # exponential average of the model's parameters
    update: Int[Array, ""]  # updates done
    totals: Totals
    first_bad_update: Int[Array, ""]  # after which bound or parameters were seen not to be finite; 0: none


class Trainer(eqx.Module):
    """The settings of the loop. Update n draws its latents and dreams from keys that depend on n alone.

    With a mesh, its devices share every batch. Each holds the whole state; trainer, state and examples must be on all
    of them (`devices.replicated`).
    """

    optimizer: optax.GradientTransformation = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    averaging: float | None = eqx.field(static=True)
    keys: Keys
    key_of_order: PRNGKeyArray
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.mesh is not None:
            refuse_uneven(self.batch_size, self.mesh.size)

    def updates_per_epoch(self, examples: Examples) -> int:
        """Return the number of whole mini-batches in the training set."""
        return len(examples) // self.batch_size

    def initial_state(self, model: Model, estimator: Estimator, examples: Examples) -> TrainingState:
        """Return the state before the first update.

        The estimator's running moments start from one draw that is not used for learning. If they started from zero,
        the first signals would be as large as the bound, and stay in Adam's second moment for long.
        """
        # The loop donates the state's memory, so its arrays must not share memory with each other or with the caller's.
        model = jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, model)
        estimator, has_objective = _after_first_draw((self, model, examples), estimator)
        return TrainingState(
            model=model,
            estimator=estimator,
            optimizer_state=self.optimizer.init(partition((model, estimator))[0]),
            average=None if self.averaging is None else jax.tree.map(jnp.copy, partition(model)[0]),
            update=jnp.zeros((), jnp.int32),
            totals=Totals.zero(has_objective),
            first_bad_update=jnp.zeros((), jnp.int32),
        )

    def epoch_order(self, examples: Examples, epoch: int) -> Int[Array, "N"]:
        """Return the order in which an epoch goes through the training set."""
        return jax.random.permutation(jax.random.fold_in(self.key_of_order, epoch), len(examples))

    def advance(
        self, state: TrainingState, examples: Examples, order: Int[Array, "N"], num_updates: int
    ) -> TrainingState:
        """Return the state `num_updates` later, all within the epoch of `order`, in one compiled call.

        The memory of `state` is donated: do not use it afterwards.
        """
        order, number = replicated((order, jnp.asarray(num_updates, jnp.int32)), self.mesh)
        return _compiled_advance((self, examples, order, number), state)


@eqx.filter_jit
def _after_first_draw(fixed: tuple[Trainer, Model, Examples], estimator: Estimator) -> tuple[Estimator, bool]:
    """Return the estimator updated by one draw, and whether its objective differs from the bound."""
    trainer, model, examples = fixed
    rows = jnp.arange(trainer.batch_size)
    # Updates count from 1, so number 0 is free for the draw before them.
    estimate = _estimate(trainer, model, estimator, examples, rows, jnp.zeros((), jnp.int32))
    return estimator.updated(estimate), estimate.objective is not None


@eqx.filter_jit  # without options, so that other traces may contain it: JAX keeps its trace, which takes seconds
def advance(fixed: tuple[Trainer, Examples, Array, Array], state: TrainingState) -> TrainingState:
    """Return the state `num_updates` later; see `Trainer.advance`."""
    mesh = fixed[0].mesh
    return _advance(None, fixed, state) if mesh is None else on_every_device(_advance, mesh, fixed, state)


def _advance(part: Part | None, fixed: tuple[Trainer, Examples, Array, Array], state: TrainingState) -> TrainingState:
    trainer, examples, order, num_updates = fixed
    dynamic, static = eqx.partition(state, eqx.is_array)

    def step(_: Int[Array, ""], dynamic: PyTree) -> PyTree:
        return eqx.filter(updated(trainer, eqx.combine(dynamic, static), examples, order, part), eqx.is_array)

    after = eqx.combine(jax.lax.fori_loop(0, num_updates, step, dynamic), static)
    # Each update checks the parameters left by the one before it; those of the last update are checked here.
    is_bad = (after.first_bad_update == 0) & ~jnp.isfinite(_norm(partition((after.model, after.estimator))[0]))
    number = jnp.where(is_bad, after.update, after.first_bad_update)
    return eqx.tree_at(lambda state: state.first_bad_update, after, number)


_compiled_advance = compiled(lambda fixed, state: advance(fixed, state), donate="all-except-first")


def _norm(tree: PyTree) -> Float[Array, ""]:
    """Return the Euclidean norm of all arrays of a tree. Products sum the rows, since they are vectorised."""
    rows = [(a**2, jnp.ones(a.shape[-1:], a.dtype)) for a in map(jnp.atleast_1d, jax.tree.leaves(tree))]
    return jnp.sqrt(sum(jnp.sum(jnp.matmul(*pair, precision="highest")) for pair in rows))


def updated(
    trainer: Trainer, state: TrainingState, examples: Examples, order: Int[Array, "N"], part: Part | None = None
) -> TrainingState:
    """Return the state after one more update, on one device, or on each of several with its part of the batch."""
    number = state.update + 1
    trainable, rest = partition((state.model, state.estimator))
    gradient, estimate = gradient_and_estimate(trainer, state, examples, order, part)
    steps, optimizer_state = trainer.optimizer.update(gradient, state.optimizer_state, trainable)
    model, estimator = eqx.combine(optax.apply_updates(trainable, steps), rest)

    bound = jnp.mean(estimate.bound)
    is_bad = jnp.isnan(bound) | (bound == jnp.inf)  # −inf is the bound of impossible samples, which teach nothing
    return TrainingState(
        model=model,
        estimator=estimator.updated(estimate),
        optimizer_state=optimizer_state,
        average=_average(trainer.averaging, state.average, model, number),
        update=number,
        totals=state.totals.plus(estimate, gradient[0]),
        first_bad_update=jnp.where((state.first_bad_update == 0) & is_bad, number, state.first_bad_update),
    )


def gradient_and_estimate(
    trainer: Trainer, state: TrainingState, examples: Examples, order: Int[Array, "N"], part: Part | None = None
) -> tuple[PyTree, Estimate]:
    """Return the gradient that the next update descends and its estimate, both of the whole batch."""
    batch_number = state.update % trainer.updates_per_epoch(examples)
    rows = jax.lax.dynamic_slice(order, (batch_number * trainer.batch_size,), (trainer.batch_size,))
    number = state.update + 1
    trainable, rest = partition((state.model, state.estimator))

    def objective(trainable: PyTree) -> tuple[Float[Array, ""], Estimate]:
        model, estimator = eqx.combine(trainable, rest)
        estimate = _estimate(trainer, model, estimator, examples, rows, number, part)
        return -jnp.mean(estimate.surrogate), estimate  # the only minus sign: optimizers minimise

    gradient, estimate = jax.grad(objective, has_aux=True)(trainable)
    if part is None:
        return gradient, estimate
    if any(leaf.shape[-1:] != estimate.surrogate.shape for leaf in jax.tree.leaves(estimate)):
        raise UsageError(
            "On several devices all that an estimate holds is joined along its last axis, which must be the examples: "
            "train with one device, or give the estimator's residual that axis."
        )
    return part.mean_and_joined(gradient, estimate)


def _estimate(
    trainer: Trainer,
    model: Any,
    estimator: Estimator,
    examples: Examples,
    rows: Array,
    number: Array,
    part: Part | None = None,
) -> Estimate:
    """Return the estimate from samples of these rows, drawn with the keys of this update's number."""
    batch = examples.batch(rows, jnp.result_type(float), part, number)
    keys = jax.tree.map(lambda key: fold_in(key, number), trainer.keys)
    if part is not None and not getattr(model, "heeds_parts", False):
        keys = jax.tree.map(lambda key: fold_in(key, part.index), keys)
    return estimator(samples_for(model, estimator.needs, keys, batch, trainer.num_samples), batch)


def _average(decay: float | None, average: PyTree, model: PyTree, number: Int[Array, ""]) -> PyTree:
    """Return the exponential average of parameters, over few updates at first, so that it forgets the initial ones."""
    if decay is None:
        return None
    n = number.astype(jnp.result_type(float))
    keep = jnp.minimum(decay, (1 + n) / (10 + n))
    return jax.tree.map(lambda a, p: (keep * a + (1 - keep) * p).astype(a.dtype), average, partition(model)[0])
