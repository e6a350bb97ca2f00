"""Bounds and negative log-likelihoods of any model with importance samples.

The *bound* of a program is the average of L̂ over examples with the K it trains with. The *negative log-likelihood* is
minus the same average with many samples (1000 in the paper): E[L̂] rises to log P(x) as K grows, so with many samples
minus the bound is in expectation a slightly too large estimate of −log P(x). The two differ in nothing else.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.errors import UsageError
from vimco.samples import AXIS, Batch, Examples, ImportanceSamples, Model, Part
from vimco.training.compilation import compiled
from vimco.training.devices import on_every_device, on_one_device, replicated

BLOCK = 50  # samples drawn from one key; larger K are drawn block by block, so memory does not grow with K
ACTIVE = 0.01
LARGE_SHARE = 0.75  # of all weights: at most one sample has it
PATHS = 20  # samples whose mean predicts a label
ROWS = 2_400  # samples times examples at a time: few enough to fit into a processor's caches
T = TypeVar("T")
Sums = tuple[Array, Array, Array]  # over the samples so far, (B,) each


class Prediction(NamedTuple):
    """How well a model predicts labels by latents from its own prior, which does not see them."""

    error: float  # share of examples whose most probable label, by the mean over 20 samples, is wrong
    error_of_one: float  # the same by one sample
    log_loss: float  # −log of the mean probability of the right label: the bound with 20 samples of the prior, in nats


class Evaluation(NamedTuple):
    """The bound of every example, its variance, and the effective sample size."""

    num_samples: int
    bound: np.ndarray  # (N,), L̂ with K = num_samples
    variance: np.ndarray  # (N,), of L̂ over draws of the samples; NaN at K = 1, where it is unknown
    effective_sample_size: np.ndarray  # (N,)
    update: int | None = None  # after which the parameters were kept, where they come from a run directory
    jackknife: np.ndarray | None = None  # (N,), `vimco.jackknife_bound` of the same samples, where it was asked for
    active_units: tuple[int, ...] | None = None  # of each layer, deepest first, where latents are continuous
    prediction: Prediction | None = None  # where labels are observed

    @property
    def mean_bound(self) -> float:
        """The bound, averaged over the examples, in nats."""
        return float(np.mean(self.bound, dtype=np.float64))

    @property
    def negative_log_likelihood(self) -> float:
        """Minus the mean bound, in nats."""
        return -self.mean_bound

    @property
    def jackknife_negative_log_likelihood(self) -> float:
        """Minus the mean of the jackknife, in nats: without the bias of order 1/K, and not a bound. NaN without one."""
        return math.nan if self.jackknife is None else -float(np.mean(self.jackknife, dtype=np.float64))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over the choice of examples; NaN for a single one."""
        return _standard_error(self.bound)

    @property
    def monte_carlo_error(self) -> float:
        """Standard error of the mean over the draw of the samples, for these examples; NaN at K = 1."""
        return float(np.sum(self.variance, dtype=np.float64) ** 0.5 / len(self.variance))

    @property
    def mean_effective_sample_size(self) -> float:
        """The effective sample size, averaged over the examples, from 1 to K."""
        return float(np.mean(self.effective_sample_size, dtype=np.float64))

    def to_json(self) -> dict[str, Any]:
        """Return the summary for JSON; numbers that are not finite become null."""
        values = {
            "negative_log_likelihood": self.negative_log_likelihood,
            "standard_error": self.standard_error,
            "monte_carlo_error": self.monte_carlo_error,
            "effective_sample_size": self.mean_effective_sample_size,
        }
        if self.jackknife is not None:
            values["jackknife_negative_log_likelihood"] = self.jackknife_negative_log_likelihood
        if self.prediction is not None:
            values |= self.prediction._asdict()
        record: dict[str, Any] = {"num_samples": self.num_samples, "num_examples": len(self.bound)}
        record |= {name: value if math.isfinite(value) else None for name, value in values.items()}
        if self.active_units is not None:
            record["active_units"] = list(self.active_units)
        return record


class Comparison(NamedTuple):
    """The difference of the negative log-likelihoods of two models on the same examples."""

    difference: float  # nats
    standard_error: float  # of the mean, over the choice of examples


def paired_comparison(first: Evaluation, second: Evaluation) -> Comparison:
    """Return the second minus the first. Pairing removes the variation that examples cause in both."""
    if len(first.bound) != len(second.bound):
        raise UsageError(
            f"A paired comparison needs the same examples; these are {len(first.bound)} and {len(second.bound)}."
        )
    difference = first.bound.astype(np.float64) - second.bound
    return Comparison(float(np.mean(difference)), _standard_error(difference))


def _standard_error(values: np.ndarray) -> float:
    if len(values) < 2:
        return math.nan
    with np.errstate(invalid="ignore"):  # a bound of −inf has no standard error
        return float(np.std(values, ddof=1, dtype=np.float64) / len(values) ** 0.5)


def evaluate(
    model: Model,
    examples: Examples,
    key: PRNGKeyArray,
    num_samples: int,
    progress: Callable[[int, int], None] | None = None,
    mesh: Mesh | None = None,
    *,
    jackknife: bool = False,
    part: tuple[int, int] = (1, 1),
) -> Evaluation:
    """Return L̂ with K = `num_samples` for every example, in slices of examples and of K: memory does not grow with K.

    The model is any object with `importance_samples(key, batch, num_samples)`. `progress` is called with the number of
    examples done, and of all. The devices of a mesh take whole slices of examples; the results are those of one.
    The jackknife draws the same samples a second time, which doubles the work. The part (2, 5) is the second of five
    parts, each of whole slices; `joined` joins them to what one call returns, bit for bit.
    """
    if not 1 <= part[0] <= part[1]:
        raise UsageError(f"There is no part {part[0]} of {part[1]}.")
    if not isinstance(examples, Examples):
        raise UsageError(f"Examples to evaluate are a vimco.Examples(observation); got {type(examples).__name__}.")
    if len(examples) == 0:
        raise UsageError("An evaluation needs one example or more; got none.")
    if num_samples < 1:
        raise UsageError(f"An evaluation needs one sample or more; got K = {num_samples}.")
    if jackknife and num_samples < 2:
        raise UsageError(f"The jackknife leaves out one sample at a time: it needs K = 2 or more; got {num_samples}.")
    num_samples = operator.index(num_samples)  # one of NumPy's would be traced
    model, examples = replicated((model, examples), mesh)
    statistics: Callable[..., tuple[Array, ...]] = functools.partial(_compiled_statistics, mesh, model)
    if not _is_tree(model):
        statistics = eqx.filter_jit(lambda *arguments: _statistics_of_slices(mesh, model, *arguments))
    total, at_once = len(examples), 1 if mesh is None else mesh.size
    step = min(total, max(1, ROWS // min(num_samples, BLOCK))) * at_once
    slices = math.ceil(total / step)
    first, end = (min(slices * number // part[1] * step, total) for number in (part[0] - 1, part[0]))
    parts = []
    for start in range(first, end, step):
        rows = jnp.arange(start, start + step) % total  # the first examples fill up the last slice
        keys = [jax.random.fold_in(key, start // step * at_once + i) for i in range(at_once)]
        parts.append(statistics(examples, *replicated((rows, keys), mesh), num_samples, jackknife))
        if progress is not None:
            jax.block_until_ready(parts[-1])
            progress(min(start + step, total), total)
    columns = list(zip(*parts, strict=True)) or [()] * (4 if jackknife else 3)  # a part may have no slices
    bound, variance, effective, *more = (
        np.concatenate([np.zeros(0, np.float32), *map(np.asarray, column)])[: end - first] for column in columns
    )
    evaluation = Evaluation(num_samples, bound, variance, effective, jackknife=more[0] if more else None)
    if part[0] > 1:
        return evaluation
    model, examples = on_one_device((model, examples), mesh)
    return evaluation._replace(
        active_units=active_units(model, examples, key), prediction=prediction(model, examples, key)
    )


def joined(parts: Sequence[Evaluation]) -> Evaluation:
    """Return the evaluation of all examples from its parts, in order."""
    columns = ["bound", "variance", "effective_sample_size"]
    if parts[0].jackknife is not None:
        columns.append("jackknife")
    whole: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    return parts[0]._replace(**whole)


def prediction(model: Model, examples: Examples, key: PRNGKeyArray) -> Prediction | None:
    """Return how well labels are predicted; None for models that do not offer `label_log_probabilities`."""
    if not hasattr(model, "label_log_probabilities"):
        return None
    size = min(len(examples), ROWS // PATHS)
    losses, parts = _compiled_for(model, _label_losses), []
    for number, start in enumerate(range(0, len(examples), size)):
        rows = jnp.arange(start, start + size) % len(examples)  # the first examples fill up the last slice
        parts.append(losses(examples, rows, jax.random.fold_in(key, number)))
    columns = (np.concatenate(list(map(np.asarray, column)))[: len(examples)] for column in zip(*parts, strict=True))
    return Prediction(*(float(np.mean(column, dtype=np.float64)) for column in columns))


def active_units(model: Model, examples: Examples, key: PRNGKeyArray) -> tuple[int, ...] | None:
    """Return for each layer, deepest first, how many units have Var_x E_Q[u | x] > 0.01 (Burda et al., 2015).

    None for models without `posterior_means`, such as those with discrete latents. A mean over draws has noise, whose
    variance would be counted: the variance is the covariance of two such means, from different draws.
    """
    if not hasattr(model, "posterior_means"):
        return None
    size, means_of = min(len(examples), ROWS // BLOCK), _compiled_for(model, _posterior_means)
    parts = [
        means_of(examples, jnp.arange(start, min(start + size, len(examples))), key)
        for start in range(0, len(examples), size)
    ]
    layers = [np.concatenate(layer, axis=1, dtype=np.float64) for layer in zip(*parts, strict=True)]  # (2, N, n)
    deviations = [layer - layer.mean(axis=1, keepdims=True) for layer in layers]
    return tuple(int(np.sum(np.mean(first * second, axis=0) > ACTIVE)) for first, second in deviations)


def _with_more_weights(sums: Sums, log_weights: Float[Array, "S B"]) -> Sums:
    """Return log max f, and Σ f and Σ f² relative to the largest f, with more samples, in any slices."""
    log_scale, weights, squares = sums
    largest = jnp.maximum(log_scale, jnp.max(log_weights, axis=0))
    scale = jnp.where(jnp.isneginf(largest), 0.0, largest)
    before, now = jnp.exp(log_scale - scale), jnp.exp(log_weights - scale)
    return largest, weights * before + jnp.sum(now, axis=0), squares * before**2 + jnp.sum(now**2, axis=0)


def _with_more_shares(sums: Sums, log_shares: Float[Array, "S B"]) -> Sums:
    """Return Σ log(1 − w̃_j) and log Σ w̃_j over w̃_j ≤ 3/4, and whether one is above, with more samples."""
    logs, log_small, has_large = sums
    is_large = log_shares > math.log(LARGE_SHARE)
    small = jnp.where(is_large, -jnp.inf, log_shares)
    logs = logs + jnp.sum(jnp.log1p(-jnp.exp(small)), axis=0)
    log_small = jnp.logaddexp(log_small, jax.nn.logsumexp(small, axis=0))
    return logs, log_small, has_large | jnp.any(is_large, axis=0)


def _statistics(
    model: Model, examples: Examples, rows: Int[Array, "B"], key: PRNGKeyArray, num_samples: int, jackknife: bool
) -> tuple[Float[Array, "B"], ...]:
    batch: Batch = examples.batch(rows, jnp.result_type(float))

    def over_blocks(added: Callable[[Sums, Array], Sums], sums: Sums) -> Sums:
        """Add the log-weights of all samples to the sums, block by block; the same samples at every call."""

        def add_block(number: Int[Array, ""], sums: Sums, size: int = BLOCK) -> Sums:
            samples = model.importance_samples(jax.random.fold_in(key, number), batch, size)
            return added(sums, _checked(samples, (size, rows.shape[0])).log_weights)

        whole, rest = divmod(num_samples, BLOCK)
        if whole:
            sums = jax.lax.fori_loop(0, whole, add_block, sums)
        return add_block(jnp.asarray(whole), sums, rest) if rest else sums

    size = rows.shape[0]
    nothing = (jnp.full(size, -jnp.inf), jnp.zeros(size), jnp.zeros(size))
    log_scale, weights, squares = over_blocks(_with_more_weights, nothing)
    bound = log_scale + jnp.log(weights) - jnp.log(num_samples)
    effective = jnp.where(squares > 0, weights**2 / squares, squares)  # 0, or NaN where a weight is NaN
    # The delta method: Var log f̄ ≈ Var f̄ / f̄², with the sample variance s² / K of the mean f̄, and
    # s² / (K f̄²) = (K / ESS − 1) / (K − 1).
    relative = (num_samples / effective - 1) / (num_samples - 1) if num_samples > 1 else jnp.full_like(bound, jnp.nan)
    variance = jnp.where(effective > 0, jnp.maximum(relative, 0.0), jnp.inf + effective)  # ∞, or NaN
    statistics = (jnp.where(weights > 0, bound, log_scale), variance, effective)  # −∞, or NaN where a weight is NaN
    if not jackknife:
        return statistics
    # The jackknife subtracts (K − 1) (1/K Σ_j log(1 − w̃_j) − log(1 − 1/K)) from L̂. At most one w̃_j is above
    # 3/4, and 1 − w̃_j is then the sum of the others; a half would be passed by two equal ones, by rounding.
    log_sum = jnp.where(weights > 0, log_scale + jnp.log(weights), 0.0)
    logs, log_small, has_large = over_blocks(
        lambda sums, log_weights: _with_more_shares(sums, log_weights - log_sum),
        (jnp.zeros(size), jnp.full(size, -jnp.inf), jnp.zeros(size, bool)),
    )
    logs = logs + jnp.where(has_large, log_small, 0.0)
    correction = (num_samples - 1) * (logs / num_samples - math.log1p(-1 / num_samples))
    return *statistics, jnp.where(log_small == -jnp.inf, -jnp.inf, bound - correction)


def _checked(samples: Any, shape: tuple[int, int]) -> ImportanceSamples:
    """Return the samples of a model; refuse what is no record of K samples for each of B examples."""
    if not isinstance(samples, ImportanceSamples):
        raise UsageError(f"`importance_samples` returns a vimco.ImportanceSamples; got {type(samples).__name__}.")
    if samples.log_joint.shape != shape:
        raise UsageError(
            f"The log-probabilities of `importance_samples` have the shape (K, B), here {shape}; got "
            f"{samples.log_joint.shape}."
        )
    return samples


def _statistics_of_slices(
    mesh: Mesh | None,
    model: Model,
    examples: Examples,
    rows: Int[Array, "N"],
    keys: list[PRNGKeyArray],
    num_samples: int,
    jackknife: bool,
) -> tuple[Float[Array, "N"], ...]:
    """Return the statistics of one slice of examples for each key, on as many devices."""
    if mesh is None:
        return _statistics(model, examples, rows, keys[0], num_samples, jackknife)

    def of_own(part: Part, model: Model, examples: Examples, rows: Array, keys: list) -> tuple[Array, ...]:
        own_rows, own_key = rows.reshape(part.count, -1)[part.index], jnp.stack(keys)[part.index]
        own = _statistics(model, examples, own_rows, own_key, num_samples, jackknife)
        return tuple(jax.lax.all_gather(column, AXIS, tiled=True) for column in own)

    return on_every_device(of_own, mesh, model, examples, rows, keys)


def _is_tree(model: Model) -> bool:
    """Return whether a model is a pytree. The arrays of others are compiled in as constants, and may change later."""
    return not jax.tree_util.all_leaves([model])


def _compiled_for(model: Model, function: Callable[..., T]) -> Callable[..., T]:
    """Return a function of a model and more, compiled, as a function of the rest; anew for a model that is no tree."""
    if _is_tree(model):
        return functools.partial(_compiled, function, model)
    return eqx.filter_jit(lambda *arguments: function(model, *arguments))


@eqx.filter_jit
def _compiled(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


def _label_losses(
    model: Any, examples: Examples, rows: Int[Array, "B"], key: PRNGKeyArray
) -> tuple[Float[Array, "B"], Float[Array, "B"], Float[Array, "B"]]:
    """Return whether the mean of all paths is wrong, the share of paths that are, and the log-loss of the mean."""
    batch = examples.batch(rows, jnp.result_type(float))
    each = model.label_log_probabilities(key, batch, PATHS)
    mean = jax.nn.logsumexp(each, axis=0) - jnp.log(PATHS)
    label = jnp.argmax(batch.observation, axis=-1)
    log_of_label = jnp.where(batch.observation > 0, mean * batch.observation, 0.0)  # other labels may be impossible
    wrong, wrong_each = ((jnp.argmax(a, axis=-1) != label).astype(mean.dtype) for a in (mean, each))
    return wrong, jnp.mean(wrong_each, axis=0), -jnp.sum(log_of_label, axis=-1)


def _posterior_means(
    model: Any, examples: Examples, rows: Int[Array, "B"], key: PRNGKeyArray
) -> tuple[Float[Array, "2 B _"], ...]:
    """Return the means of each layer twice, from different draws."""
    batch = examples.batch(rows, jnp.result_type(float))
    twice = [model.posterior_means(jax.random.fold_in(key, i), batch, BLOCK) for i in range(2)]
    return tuple(jnp.stack(pair) for pair in zip(*twice, strict=True))


_compiled_statistics = compiled(_statistics_of_slices)
