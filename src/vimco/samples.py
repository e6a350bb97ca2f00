"""The records that models pass to estimators (`ImportanceSamples`) and estimators to the training loop (`Estimate`)."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from array_api_compat import array_namespace
from jax.flatten_util import ravel_pytree
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from vimco.errors import UsageError
from vimco.signals import effective_sample_size, multi_sample_bound

AnyArray = Any  # a JAX array or a PyTorch tensor; the records of estimators hold either


AXIS = "batch"  # the axis of a mesh of devices along which a batch is divided


class Part(eqx.Module):
    """One device's part of a batch: its share, number `index` of `count`, of each quarter of the examples.

    It takes a share of each quarter because four examples, one of each quarter, share random words
    (`sample_bernoulli`): so a part draws the samples that its examples have in the whole batch. Use it only inside
    `jax.shard_map`, over the axis `AXIS`.
    """

    index: Int[Array, ""]
    count: int = eqx.field(static=True)

    def of(self, whole: Shaped[Array, "N *n"]) -> Shaped[Array, "M *n"]:
        """Return the values of this part, from those of the whole batch; their first axis is the examples."""
        shares = whole.reshape(4, self.count, -1, *whole.shape[1:])
        return shares[:, self.index].reshape(-1, *whole.shape[1:])

    def joined(self, own: Shaped[Array, "*n M"]) -> Shaped[Array, "*n N"]:
        """Return the values of the whole batch, from those of all parts, whose last axis is the examples."""
        return jax.lax.psum(self._in_place(own), AXIS)

    def mean_and_joined(self, mean: PyTree, own: PyTree) -> tuple[PyTree, PyTree]:
        """Return the average of `mean` over the parts, and `own` joined, in one exchange of one flat vector."""
        shares = jax.tree.map(lambda leaf: leaf / self.count, mean)
        flat, restored = ravel_pytree((shares, jax.tree.map(self._in_place, own)))
        return restored(jax.lax.psum(flat, AXIS))

    def _in_place(self, own: Shaped[Array, "*n M"]) -> Shaped[Array, "*n N"]:
        """Return the values at their places in the whole batch, zeros elsewhere; the sum over parts joins them."""
        *leading, size = own.shape
        is_own = jnp.arange(self.count)[:, None] == self.index
        return jnp.where(is_own, own.reshape(*leading, 4, 1, size // 4), 0).reshape(*leading, self.count * size)


def _nothing(observation: Shaped[Array, "N *D"]) -> Shaped[Array, "N 0"]:
    """Return a context of width zero."""
    if observation.ndim == 0:
        raise UsageError("The first axis of observations is the examples; this is a single number.")
    return observation.reshape(observation.shape[0], math.prod(observation.shape[1:]))[:, :0]


class Batch(eqx.Module):
    """A mini-batch of observations x and contexts c.

    A generative model conditions on nothing: its context has width zero (Sec. 3).
    """

    observation: Float[Array, "B *D"]  # x
    context: Float[Array, "B C"]  # c
    part: Part | None  # the part of a batch, on one of several devices; None: the whole batch

    def __init__(
        self,
        observation: Float[Array, "B *D"],
        context: Float[Array, "B C"] | None = None,
        part: Part | None = None,
    ):
        self.observation = observation
        self.context = _nothing(observation) if context is None else context
        self.part = part


# What makes the contexts of some rows from the stored images, as functions of row and draw alone: (images, rows, draw).
SceneMaker = Callable[[Shaped[Array, "N _"], Int[Array, "B"], Int[Array, ""]], Shaped[Array, "B C"]]


class Examples(eqx.Module):
    """A whole split on the device. Binary data stay bytes: 50,000 images of 784 pixels take 39 MB, as floats 157 MB.

    With `scenes`, a context is made from the stored one, another for each draw: number 0 for evaluation, then those of
    the updates.
    """

    observation: Shaped[Array, "N *D"]
    context: Shaped[Array, "N C"]
    scenes: SceneMaker | None

    def __init__(
        self,
        observation: Shaped[Array, "N *D"],
        context: Shaped[Array, "N C"] | None = None,
        scenes: SceneMaker | None = None,
    ):
        if context is not None and context.shape[0] != observation.shape[0]:
            numbers = f"{observation.shape[0]} observations and {context.shape[0]} contexts"
            raise UsageError(f"Every example has one context: got {numbers}.")
        self.observation = observation
        self.context = _nothing(observation) if context is None else context
        self.scenes = scenes

    def __len__(self) -> int:
        return self.observation.shape[0]

    def batch(
        self, rows: Int[Array, "B"], dtype: jnp.dtype, part: Part | None = None, draw: Int[Array, ""] | int = 0
    ) -> Batch:
        """Return the batch of these rows, as floats, or a part of it."""
        rows = rows if part is None else part.of(rows)
        make = self.scenes
        context = self.context[rows] if make is None else make(self.context, rows, jnp.asarray(draw))
        return Batch(self.observation[rows].astype(dtype), context.astype(dtype), part)


Latents = tuple[Float[AnyArray, "K B _"], ...]
Logits = tuple[Float[AnyArray, "... B _"], ...]
Choice = Callable[[int, Float[AnyArray, "... B _"]], Float[AnyArray, "K B _"]]  # the values of layer i, from its logits


@runtime_checkable  # for beartype, in the tests
class BinaryChain(Protocol):
    """A proposal that samples layers of binary units one after the other, for one batch, and its model.

    Latents and logits are in order of sampling. Values need not be binary: they may be means or relaxed samples, and
    gradients flow through them.
    """

    def walk(self, choose: Choice) -> tuple[Latents, Logits]:
        """Return the values that `choose` gives each layer in turn, and the layers' logits given those before them."""
        ...

    def log_proposals(self, latents: Latents, logits: Logits) -> tuple[Float[Array, "K B"], ...]:
        """Return log Q of each layer given those sampled before it."""
        ...

    def log_weights(self, latents: Latents, logits: Logits) -> tuple[Float[Array, "K B"], ...]:
        """Return the terms of log f, each with the last layer, in order of sampling, that it depends on."""
        ...

    def flips(self, i: int, latents: Latents, logits: Logits) -> tuple[Float[Array, "K B n"], Float[Array, "K B n"]]:
        """Return the change of log f, and of log Q of later layers, for each unit of layer i that is flipped alone."""
        ...


class Layers(eqx.Module):
    """The layers of a binary proposal at its samples, in order of sampling."""

    latents: Latents  # held constant
    logits: Logits  # of Q, each layer given those sampled before it
    log_proposals: tuple[Float[AnyArray, "K B"], ...]  # their sum is log Q
    log_weights: tuple[Float[AnyArray, "K B"], ...]  # the terms of log f by the last layer that each depends on
    chain: Any  # a `BinaryChain`, for log f at other latents


class ImportanceSamples(eqx.Module):
    """K weighted samples of the latents per example: all that an estimator knows about a model.

    Gradients must flow through both log-probabilities into the parameters, and through reparameterised latents, but
    not into discrete ones.
    """

    log_joint: Float[AnyArray, "K *B"]  # log P(x, h^k | c)
    log_proposal: Float[AnyArray, "K *B"]  # log Q(h^k | x, c)
    # log Q of the latents that are *not* reparameterised, where that is not all of them; None: log_proposal.
    log_score: Float[AnyArray, "K *B"] | None = None
    # log Q(h | x, c) at dreams (x, h) ~ P(x, h | c), for the sleep update (Eq. 12) alone.
    log_proposal_of_dreams: Float[AnyArray, "*B"] | None = None
    # log f of S more samples from the same proposal, for OVIS's baseline alone; no gradient flows through them.
    auxiliary_log_weights: Float[AnyArray, "S *B"] | None = None
    # log P(x | h^k, c), a part of `log_joint`, for likelihood annealing alone.
    log_likelihood: Float[AnyArray, "K *B"] | None = None
    # log f with all parameters held constant and the latents attached, for STL and DReG alone. Where it is given,
    # `log_joint` holds the latents constant: parameters and latents then have coefficients of their own.
    frozen_log_weights: Float[AnyArray, "K *B"] | None = None
    # 1 where the most probable label given h^k is the right one, else 0, for RAM alone.
    reward: Float[AnyArray, "K *B"] | None = None
    # The same layer by layer, for estimators that look inside log f.
    layers: Layers | None = None
    # True where every latent is attached: reparameterised, or passed straight through. Needed by `Pathwise`. Without
    # `log_score` no latent has a score then.
    latents_attached: bool = eqx.field(static=True, default=False)
    # True where the samples come from the model's own prior (Eq. 1): its parameters are also the proposal's, and log f
    # does not contain log Q.
    proposal_is_prior: bool = eqx.field(static=True, default=False)
    # True where P and Q, or with the prior as proposal P(h | c) and P(x | h, c), have parameters in common (a shared
    # network, say), or where f is not P / Q.
    shared_parameters: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        # An axis of size 1 would broadcast, and every bound would be wrong.
        of_samples = ("log_proposal", "log_score", "log_likelihood", "frozen_log_weights", "reward")
        check_shapes("log_joint", self.log_joint, **{name: getattr(self, name) for name in of_samples})

    @classmethod
    def from_weights(
        cls,
        log_weights: Float[AnyArray, "K *B"],
        log_proposal: Float[AnyArray, "K *B"],
        log_score: Float[AnyArray, "K *B"] | None = None,
        *,
        proposal_is_prior: bool = False,
    ) -> "ImportanceSamples":
        """Return the record for any f: `log_weights` is log f(x, h^k), `log_proposal` is log Q of the samples.

        Only the caller knows whether log f and log Q share parameters, so `shared_parameters` is set, except for the
        prior as proposal; RWS refuses such samples.
        """
        check_shapes("log_weights", log_weights, log_proposal=log_proposal)
        return cls(
            log_weights + log_proposal,
            log_proposal,
            log_score,
            proposal_is_prior=proposal_is_prior,
            shared_parameters=not proposal_is_prior,
        )

    @property
    def log_weights(self) -> Float[AnyArray, "K *B"]:
        """log f(x, h^k) = log P(x, h^k | c) − log Q(h^k | x, c)  (Eq. 2)."""
        return self.log_joint - self.log_proposal

    @property
    def has_attached_latents(self) -> bool:
        """Whether gradients flow through some or all of the latents."""
        return self.latents_attached or self.log_score is not None

    @property
    def scored(self) -> Float[AnyArray, "K *B"]:
        """log Q of the latents that are not attached, which learning signals multiply."""
        if self.log_score is not None:
            return self.log_score
        return (
            array_namespace(self.log_joint).zeros_like(self.log_joint) if self.latents_attached else self.log_proposal
        )

    @property
    def num_samples(self) -> int:
        """K."""
        return self.log_joint.shape[0]


def check_shapes(name: str, values: AnyArray, **others: AnyArray | None) -> None:
    """Refuse arrays whose shape is not that of `values`, and values without a sample axis."""
    for other, given in others.items():
        if given is not None and given.shape != values.shape:
            raise UsageError(
                f"{name} and {other} must agree in shape, samples first: got {tuple(values.shape)} and "
                f"{tuple(given.shape)}."
            )
    if values.ndim == 0:
        raise UsageError(f"{name} needs a sample axis: its shape is (K, ...), also for K = 1.")


class Estimate(eqx.Module):
    """The result of an estimator. The gradient of `surrogate` is the estimate of ∇L^K, per example."""

    surrogate: Float[AnyArray, "*B"]  # to be maximised; its value means nothing
    log_weights: Float[AnyArray, "K *B"]  # log f(x, h^k), held constant
    learning_signal: Float[AnyArray, "K *B"]  # the factor of ∇ log Q(h^k): centred, before any normalisation
    residual: Float[AnyArray, "..."] | None = None  # input of the estimator's state; its last axis is the examples
    objective: Float[AnyArray, "*B"] | None = None  # the estimate of the objective; None: the bound

    @property
    def bound(self) -> Float[AnyArray, "*B"]:
        """L̂, Eq. 4, for every estimator."""
        return multi_sample_bound(self.log_weights)

    @property
    def effective_sample_size(self) -> Float[AnyArray, "*B"]:
        """(Σ f)² / Σ f², between 1 and K; 0 where every f is zero."""
        return effective_sample_size(self.log_weights)

    @property
    def signal_rms(self) -> Float[AnyArray, ""]:
        """Root mean square of the learning signal over samples and examples (supplement C)."""
        xp = array_namespace(self.learning_signal)
        return xp.sqrt(xp.mean(self.learning_signal**2))


@runtime_checkable  # for beartype, in the tests
class Model(Protocol):
    """The method that every model has. A `Need` names the methods of models that offer more to estimators.

    Optional, for evaluation, noise and several devices:

    - `posterior_means(key, batch, num_samples)` returns E_Q[z | x] of each layer, deepest first, each of shape (B, n):
      evaluations then count active units.
    - `label_log_probabilities(key, batch, num_samples)` returns log P(y | h^k, c) of every label, (K, B, labels), for
      samples that do not see the right one, the one-hot observation: evaluations then count errors.
    - `proposal`, an attribute with the proposal's parameters: their gradient's noise is shown apart, unless it is None.
    - `heeds_parts = True`, a class attribute: on several devices the model uses `batch.part`, and so draws the samples
      of the whole batch. Other models get a separate key for each part.
    """

    def importance_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return K weighted samples for each example."""
        ...


class Keys(eqx.Module):
    """The random keys of one draw of samples, one for each purpose."""

    latents: PRNGKeyArray
    dreams: PRNGKeyArray
    auxiliary: PRNGKeyArray


class Need:
    """Something that an estimator needs of a model beyond weighted samples."""

    what: str
    field: str  # of `ImportanceSamples`
    method: str  # of models that offer it

    @property
    def source(self) -> str:
        """Where the field comes from, for samples of one's own."""
        return f"from a model's method `{self.method}`"

    def added(self, model: Any, samples: ImportanceSamples, keys: Keys, batch: Batch) -> ImportanceSamples:
        """Return the samples with the needed field."""
        raise NotImplementedError

    def is_met(self, samples: ImportanceSamples) -> bool:
        """Return whether the samples have the needed field."""
        value = getattr(samples, self.field)
        return value is not None and value is not False


@dataclass(frozen=True)
class Dreams(Need):
    """log Q at dreams, for the sleep update."""

    what = "dreams, draws from the model itself"
    field = method = "log_proposal_of_dreams"

    def added(self, model: Any, samples: ImportanceSamples, keys: Keys, batch: Batch) -> ImportanceSamples:
        """Return the samples with one dream for each example."""
        return dataclasses.replace(samples, log_proposal_of_dreams=model.log_proposal_of_dreams(keys.dreams, batch))


@dataclass(frozen=True)
class Auxiliary(Need):
    """log f of S more samples, without a gradient. Every model offers this."""

    number: int  # S

    what = "auxiliary samples"
    field = "auxiliary_log_weights"
    method = "importance_samples"
    source = "log f of S more samples from the same proposal"

    def added(self, model: Any, samples: ImportanceSamples, keys: Keys, batch: Batch) -> ImportanceSamples:
        """Return the samples with S more log-weights."""
        more = model.importance_samples(keys.auxiliary, batch, self.number)
        return dataclasses.replace(samples, auxiliary_log_weights=stop_gradient(more.log_weights))


@dataclass(frozen=True)
class OtherSamples(Need):
    """A need that a model meets by drawing the K samples in another way, with the field filled."""

    what: str
    field: str
    method: str

    def added(self, model: Any, samples: ImportanceSamples, keys: Keys, batch: Batch) -> ImportanceSamples:
        """Return the samples drawn again, from the same key."""
        return getattr(model, self.method)(keys.latents, batch, samples.num_samples)


LOG_LIKELIHOOD = OtherSamples("log P(x | h) by itself", "log_likelihood", "samples_with_likelihood")
REWARDS = OtherSamples("the reward of a right label", "reward", "rewarded_samples")
FROZEN_LOG_WEIGHTS = OtherSamples(
    "reparameterised latents, and log f with its parameters held constant", "frozen_log_weights", "frozen_samples"
)
ATTACHED_LATENTS = OtherSamples("latents through which gradients flow", "latents_attached", "attached_samples")
STRAIGHT_THROUGH_LATENTS = OtherSamples(
    "binary latents that pass gradients straight through", "latents_attached", "straight_through_samples"
)
BINARY_LAYERS = OtherSamples("the layers of a binary proposal, one by one", "layers", "layered_samples")


def required(samples: ImportanceSamples, need: Need) -> Any:
    """Return the field that an estimator needs; refuse samples without it."""
    if not need.is_met(samples):
        raise UsageError(
            f"This estimator needs {need.what}: give the samples `{need.field}`, {need.source}, or use an estimator "
            "that needs the weighted samples alone, such as VIMCO."
        )
    return getattr(samples, need.field)


def samples_for(model: Model, needs: Sequence[Need], keys: Keys, batch: Batch, num_samples: int) -> ImportanceSamples:
    """Return K weighted samples for each example, with everything that is needed of the model."""
    samples = model.importance_samples(keys.latents, batch, num_samples)
    for need in needs:
        if not hasattr(model, need.method):
            raise UsageError(
                f"This estimator needs {need.what}, and the model offers none: {type(model).__name__} has no method "
                f"`{need.method}`. Use an estimator that needs the weighted samples alone, such as VIMCO."
            )
        samples = need.added(model, samples, keys, batch)
    missing = [need.what for need in needs if not need.is_met(samples)]
    if missing:
        raise UsageError(
            f"The samples of {type(model).__name__} come without {missing[0]}: it is not available with "
            f"{needs[-1].what}. Use an estimator that needs the weighted samples alone, such as VIMCO."
        )
    return samples
