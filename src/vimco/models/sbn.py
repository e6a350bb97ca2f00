"""Sigmoid belief networks: a chain of Bernoulli layers, and the model built from chains."""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.errors import UsageError
from vimco.models.kernels.bernoulli import log_bernoulli, log_bernoulli_of_layers, sample_bernoulli
from vimco.models.kernels.products import with_stored_gradient
from vimco.models.kernels.randomness import fold_in
from vimco.models.layered import LayersOfSBN
from vimco.models.layers import BernoulliLayer
from vimco.models.slices import in_slices
from vimco.parameters import Centre
from vimco.samples import Batch, Choice, ImportanceSamples, Latents, Layers, Logits, Part


class Chain(eqx.Module):
    """Bernoulli layers, each the parent of the next; `source` is the parent of the first.

    `side` is one more parent of the last layer, if that was built with two. With `symmetric` a layer sees its binary
    parent as ±1 instead of 0/1; source and side are unchanged.

    Besides its binary units every layer may have `deterministic` ones, whose value is σ(a), as in the networks of Tang
    & Salakhutdinov (2013). They follow the binary ones in a latent vector and do not enter the log-probability;
    gradients flow through them.
    """

    layers: tuple[BernoulliLayer, ...]
    symmetric: bool = eqx.field(static=True)
    deterministic: int = eqx.field(static=True, default=0)

    def __init__(
        self,
        key: PRNGKeyArray,
        sizes: tuple[int, ...],
        side_size: int | None = None,
        symmetric: bool = False,
        dtype: jnp.dtype | None = None,
        deterministic: int = 0,
    ):
        """Build the layers: `sizes` are the widths of source and layers, `side_size` that of the side input, if any."""
        sizes = (sizes[0], *(size + deterministic for size in sizes[1:]))
        keys = jax.random.split(key, len(sizes) - 1)
        layers = []
        for i, (size, key_of_layer) in enumerate(zip(sizes[1:], keys, strict=True)):
            is_last = i == len(sizes) - 2
            parents = (sizes[i], side_size) if is_last and side_size is not None else (sizes[i],)
            layers.append(BernoulliLayer(key_of_layer, parents, size, dtype))
        self.layers = tuple(layers)
        self.symmetric = symmetric
        self.deterministic = deterministic

    def walk(
        self, choose: Choice, source: Float[Array, "B _"], side: Float[Array, "B _"] | None = None
    ) -> tuple[Latents, Logits]:
        """Return the values that `choose` gives each layer in turn, and the layers' logits given those before them."""
        latents: Latents = ()
        logits: Logits = ()
        for i in range(len(self.layers)):
            of_layer = self.logits(i, source, side, latents)
            binary, others = of_layer, None
            if self.deterministic:
                binary, others = jnp.split(of_layer, [of_layer.shape[-1] - self.deterministic], axis=-1)
            value = choose(i, binary)
            if others is not None:
                means = jnp.broadcast_to(jax.nn.sigmoid(others), (*value.shape[:-1], self.deterministic))
                value = jnp.concatenate([value, means], axis=-1)
            logits, latents = (*logits, binary), (*latents, value)
        return latents, logits

    @property
    def scale(self) -> int:
        """The change of a layer's input when a binary parent changes."""
        return 2 if self.symmetric else 1

    def recoded(self, latent: Float[Array, "K B n"]) -> Float[Array, "K B n"]:
        """Return a latent vector as its children see it."""
        return 2 * latent - 1 if self.symmetric else latent

    def logits(
        self, i: int, source: Float[Array, "B _"], side: Float[Array, "B _"] | None, latents: Latents
    ) -> Float[Array, "... B n"]:
        """Return the logits of layer i given the latents of the layers before it."""
        parent = source if i == 0 else self.recoded(latents[i - 1])
        is_last = i == len(self.layers) - 1
        return self.layers[i](parent, side) if is_last and side is not None else self.layers[i](parent)


def drawn(key: PRNGKeyArray, numbers: Int[Array, "K"], part: Part | None = None) -> Choice:
    """Return a `Choice` that draws values for each of the sample numbers."""
    return lambda i, logits: sample_bernoulli(fold_in(key, i), numbers, logits, part)


def given(latents: Latents) -> Choice:
    """Return a `Choice` of the binary values among these; deterministic ones are recomputed."""
    return lambda i, logits: _first(logits.shape[-1], latents[i])


def log_prob(latents: Latents, logits: Logits) -> Float[Array, "K B"]:
    """Return the log-probability of the binary units of a walk."""
    binary = tuple(_first(a.shape[-1], h) for h, a in zip(latents, logits, strict=True))
    return log_bernoulli_of_layers(binary, logits)


def _first(width: int, values: Float[Array, "*B n"]) -> Float[Array, "*B _"]:
    return values if values.shape[-1] == width else values[..., :width]


def straight_through(choose: Choice) -> Choice:
    """Return a `Choice` of the same values with the gradient of the units' means σ(a) (Raiko et al., 2014)."""

    def chosen(i: int, logits: Float[Array, "... B n"]) -> Float[Array, "K B n"]:
        mean = jax.nn.sigmoid(logits)
        return choose(i, logits) + (mean - stop_gradient(mean))

    return chosen


class Proposal(eqx.Module):
    """Q(h | x, c): a chain over the latents that may depend on the observation."""

    chain: eqx.AbstractVar[Chain]
    is_upward: ClassVar[bool]  # whether the chain begins with the layer next to the observation

    @abc.abstractmethod
    def inputs(self, batch: Batch) -> tuple[Float[Array, "B _"], Float[Array, "B _"] | None]:
        """Return the source and the side of the chain."""


class SigmoidBeliefNetwork(eqx.Module):
    """P(x, h | c) = P(h¹ | c) Π_l P(h^l | h^{l−1}) P(x | h^L), and a proposal Q(h | x, c). h¹ is the deepest layer.

    Without a proposal the prior P(h | c) replaces it (Eq. 1): both fields of the importance samples then contain
    log P(h | c), and log f is log P(x | h, c).

    `slice_size` bounds the memory of many samples: forward and backward pass compute K in slices.
    """

    prior: Chain
    likelihood: BernoulliLayer
    centre_context: Centre
    proposal: Proposal | None
    slice_size: int | None = eqx.field(static=True, default=None)

    heeds_parts: ClassVar[bool] = True

    def importance_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return K = `num_samples` draws from the proposal for each example, with their log-probabilities."""
        return dataclasses.replace(self.samples_with_likelihood(key, batch, num_samples), log_likelihood=None)

    def samples_with_likelihood(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return the same draws, and also log P(x | h, c) by itself, for annealing."""

        def record(numbers: Int[Array, "k"]) -> ImportanceSamples:
            return self._record(drawn(key, numbers, batch.part), batch)

        return in_slices(record, num_samples, self.slice_size)

    def straight_through_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return `importance_samples` whose latents carry the gradient of their means."""

        def record(numbers: Int[Array, "k"]) -> ImportanceSamples:
            return self._record(straight_through(drawn(key, numbers, batch.part)), batch, attached=True)

        return in_slices(record, num_samples, self.slice_size)

    def layered_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return `importance_samples` with their layers one by one: all K at once, not in slices."""
        if self.slice_size is not None and self.slice_size < num_samples:
            raise UsageError(
                "Slices of samples are not possible with an estimator that looks at single layers: it uses all K "
                "samples at once. Leave the slice size out, or use an estimator such as VIMCO."
            )
        if self.prior.deterministic:
            raise UsageError(
                "An estimator that looks at single layers takes all their units to be binary, and this model has "
                "deterministic ones. Use an estimator such as VIMCO."
            )
        return self._layered_record(drawn(key, jnp.arange(num_samples), batch.part), batch)

    def layered_weighted(self, latents: Latents, batch: Batch) -> ImportanceSamples:
        """Return the record of `layered_samples` for given latents (deepest layer first)."""
        return self._layered_record(given(self.deepest_first(latents)), batch)

    def proposal_sample(
        self, key: PRNGKeyArray, numbers: Int[Array, "K"], batch: Batch
    ) -> tuple[Latents, Float[Array, "K B"]]:
        """Return latents, deepest layer first, drawn from the proposal for each of the sample numbers, and log Q."""
        in_order, logits = self.walk(drawn(key, numbers, batch.part), batch)
        latents, _ = self._log_prior(self.deepest_first(in_order), batch)
        return latents, log_prob(in_order, logits)

    def weighted(self, latents: Latents, batch: Batch) -> ImportanceSamples:
        """Return the importance samples of given latents (deepest layer first)."""
        return self._record(given(self.deepest_first(latents)), batch)

    def straight_through_weighted(self, latents: Latents, batch: Batch) -> ImportanceSamples:
        """Return the record of `straight_through_samples` for given latents (deepest layer first)."""
        return self._record(straight_through(given(self.deepest_first(latents))), batch, attached=True)

    def walk(self, choose: Choice, batch: Batch) -> tuple[Latents, Logits]:
        """Return the values that `choose` gives each layer of the proposal, and their logits, in order of sampling."""
        if self.proposal is None:
            return self.prior.walk(choose, self.centre_context(batch.context))
        return self.proposal.chain.walk(choose, *self.proposal.inputs(batch))

    def deepest_first(self, latents: Latents) -> Latents:
        """Return the latents in the model's order instead of the proposal's; this is its own inverse."""
        return latents[::-1] if self.proposal is not None and self.proposal.is_upward else latents

    def sample(
        self, key: PRNGKeyArray, context: Float[Array, "B C"], part: Part | None = None
    ) -> tuple[Latents, Float[Array, "1 B D"]]:
        """Return one draw (h, x) ~ P(x, h | c) for each context: latents, deepest layer first, and observations."""
        key_of_latents, key_of_observation = jax.random.split(key)
        one = jnp.arange(1)
        latents, _ = self.prior.walk(drawn(key_of_latents, one, part), self.centre_context(context))
        return latents, sample_bernoulli(key_of_observation, one, self.observation_logits(latents), part)

    def log_proposal_of_dreams(self, key: PRNGKeyArray, batch: Batch) -> Float[Array, "B"]:
        """Return log Q(h | x, c) at one dream (x, h) ~ P(x, h | c) for each context of the batch (Eq. 12)."""
        latents, observation = self.sample(key, batch.context, batch.part)
        return self.weighted(latents, Batch(observation[0], batch.context)).log_proposal[0]

    def observation_logits(self, latents: Latents) -> Float[Array, "K B D"]:
        """Return the logits of P(x | h^L)."""
        return self.likelihood(self.prior.recoded(latents[-1]))

    def observation_probabilities(self, latents: Latents) -> Float[Array, "K B D"]:
        """Return P(x_i = 1 | h) for every pixel, which pictures show."""
        return jax.nn.sigmoid(self.observation_logits(latents))

    def _log_prior(self, latents: Latents, batch: Batch) -> tuple[Latents, Float[Array, "K B"]]:
        """Return the latents with the deterministic units of P, and log P(h | c) of the binary ones."""
        latents, logits = self.prior.walk(given(latents), self.centre_context(batch.context))
        return latents, log_prob(latents, logits)

    def _record(self, choose: Choice, batch: Batch, attached: bool = False) -> ImportanceSamples:
        in_order, logits = self.walk(choose, batch)
        latents = self.deepest_first(in_order)
        if attached and self.proposal is None:  # log f is log P(x | h, c): the gradient of log P(h | c) cancels
            in_order, logits = stop_gradient((in_order, logits))
        log_prior = log_proposal = log_prob(in_order, logits)
        # With the prior as proposal these are the same values, so that their gradients cancel in log f.
        if self.proposal is not None:
            latents, log_prior = self._log_prior(latents, batch)
        log_likelihood = log_bernoulli(batch.observation, self.observation_logits(latents))
        return ImportanceSamples(
            with_stored_gradient(log_prior + log_likelihood),
            with_stored_gradient(log_proposal),
            log_likelihood=log_likelihood,
            latents_attached=attached,
            proposal_is_prior=self.proposal is None,
            # The likelihood's gradient reaches the prior through its deterministic units.
            shared_parameters=self.proposal is None and self.prior.deterministic > 0,
        )

    def _layered_record(self, choose: Choice, batch: Batch) -> ImportanceSamples:
        chain = LayersOfSBN(self, batch)
        latents, logits = chain.walk(choose)
        log_proposals, log_weights = (
            tuple(map(with_stored_gradient, terms(latents, logits)))
            for terms in (chain.log_proposals, chain.log_weights)
        )
        log_proposal = sum(log_proposals[1:], start=log_proposals[0])
        return ImportanceSamples(
            sum(log_weights, start=log_proposal),
            log_proposal,
            layers=Layers(latents, logits, log_proposals, log_weights, chain),
            proposal_is_prior=self.proposal is None,
        )


def with_data_bias(layer: BernoulliLayer, mean: Float[Array, "n"]) -> BernoulliLayer:
    """Return the layer with a bias that gives its units the data's means; a pixel that is never on gets 1/1000."""
    mean = jnp.clip(mean, 1e-3, 1 - 1e-3)
    return eqx.tree_at(lambda layer: layer.bias, layer, jnp.log(mean) - jnp.log1p(-mean))
