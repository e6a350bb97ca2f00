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
from vimco.models.kernels.flips import change_of_children
from vimco.models.kernels.products import with_stored_gradient
from vimco.models.kernels.randomness import fold_in
from vimco.models.layers import BernoulliLayer
from vimco.models.slices import in_slices
from vimco.parameters import Centre
from vimco.samples import Batch, Choice, ImportanceSamples, Latents, Layers, Logits, Part


class Chain(eqx.Module):
    """Bernoulli layers, each the parent of the next; `source` is the parent of the first.

    `side` is one more parent of the last layer, if that was built with two. With `symmetric` a layer sees its
    parent's units v as 2v − 1, binary ones as ±1 instead of 0/1; source and side are unchanged.

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
        parents: list[tuple[int, ...]] = [(size,) for size in sizes[:-1]]
        if side_size is not None:
            parents[-1] = (*parents[-1], side_size)
        self.layers = tuple(
            BernoulliLayer(k, of_layer, size, dtype) for k, of_layer, size in zip(keys, parents, sizes[1:], strict=True)
        )
        self.symmetric = symmetric
        self.deterministic = deterministic

    def walk(
        self, choose: Choice, source: Float[Array, "B _"], side: Float[Array, "B _"] | None = None
    ) -> tuple[Latents, Logits]:
        """Return the values that `choose` gives each layer in turn, and the layers' logits given those before them."""
        latents: Latents = ()
        logits: Logits = ()
        for i, layer in enumerate(self.layers):
            parent = source if i == 0 else self.recoded(latents[-1])
            is_last = i == len(self.layers) - 1
            of_layer = layer(parent, side) if is_last and side is not None else layer(parent)
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
        return in_slices(lambda n: self._record(drawn(key, n, batch.part), batch), num_samples, self.slice_size)

    def straight_through_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return `importance_samples` whose latents carry the gradient of their means."""
        return in_slices(
            lambda n: self._record(straight_through(drawn(key, n, batch.part)), batch, attached=True),
            num_samples,
            self.slice_size,
        )

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
        return self._layered_record(self._given(latents), batch)

    def proposal_sample(
        self, key: PRNGKeyArray, numbers: Int[Array, "K"], batch: Batch
    ) -> tuple[Latents, Float[Array, "K B"]]:
        """Return latents, deepest layer first, drawn from the proposal for each of the sample numbers, and log Q."""
        in_order, logits = self.walk(drawn(key, numbers, batch.part), batch)
        latents, _ = self._log_prior(self.deepest_first(in_order), batch)
        return latents, log_prob(in_order, logits)

    def weighted(self, latents: Latents, batch: Batch) -> ImportanceSamples:
        """Return the importance samples of given latents (deepest layer first)."""
        return self._record(self._given(latents), batch)

    def straight_through_weighted(self, latents: Latents, batch: Batch) -> ImportanceSamples:
        """Return the record of `straight_through_samples` for given latents (deepest layer first)."""
        return self._record(straight_through(self._given(latents)), batch, attached=True)

    def _given(self, latents: Latents) -> Choice:
        """Return the `Choice` of these latents (deepest layer first), with or without their deterministic units."""
        others = self.prior.deterministic
        widths = [layer.bias.shape[0] - others for layer in self.prior.layers]
        given_widths = [values.shape[-1] for values in latents]
        if len(given_widths) != len(widths) or any(
            n not in (m, m + others) for n, m in zip(given_widths, widths, strict=True)
        ):
            raise UsageError(
                f"The layers have {widths} binary units, the deepest first; got latents of {given_widths}."
            )
        return given(self.deepest_first(latents))

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


class LayersOfSBN(eqx.Module):
    """A sigmoid belief network at one batch, as the `BinaryChain` of estimators that look inside log f."""

    model: SigmoidBeliefNetwork
    batch: Batch

    def walk(self, choose: Choice) -> tuple[Latents, Logits]:
        """Return the values that `choose` gives each layer of the proposal, and their logits, in order of sampling."""
        return self.model.walk(choose, self.batch)

    def log_proposals(self, latents: Latents, logits: Logits) -> tuple[Float[Array, "K B"], ...]:
        """Return log Q of each layer given those sampled before it."""
        return tuple(log_bernoulli(value, a) for value, a in zip(latents, logits, strict=True))

    def log_weights(self, latents: Latents, logits: Logits) -> tuple[Float[Array, "K B"], ...]:
        """Return the terms of log f, each with the last layer, in order of sampling, that it depends on.

        An upward proposal samples z_1, next to x, first: its terms are log P(z_{i−1} | z_i) − log Q(z_i | z_{i−1}),
        with z_0 = x, and log P(z_n) is added to the last. A downward one has log P(h_i | h_{i−1}) − log Q(h_i | ...),
        and log P(x | h_n) is added to the last.
        """
        deepest_first = self.model.deepest_first(latents)
        likelihood = log_bernoulli(self.batch.observation, self.model.observation_logits(deepest_first))
        if self.model.proposal is None:
            return (*(jnp.zeros_like(likelihood) for _ in latents[1:]), likelihood)
        log_q = self.log_proposals(latents, logits)
        log_p = tuple(map(log_bernoulli, deepest_first, self._prior_logits(deepest_first)))
        if self.model.proposal.is_upward:
            last, *others = log_p
            log_p = (likelihood, *others[::-1])
        else:
            last = likelihood
        terms = [p - q for p, q in zip(log_p, log_q, strict=True)]
        return (*terms[:-1], terms[-1] + last)

    def flips(self, i: int, latents: Latents, logits: Logits) -> tuple[Float[Array, "K B n"], Float[Array, "K B n"]]:
        """Return the change of log f, and of log Q of later layers, for each unit of layer i that is flipped alone.

        A flip changes the logits of the layers that see the unit by a row of their weights, so no product is repeated.
        """
        model = self.model
        proposal = model.prior if model.proposal is None else model.proposal.chain
        deepest_first = model.deepest_first(latents)
        depth = len(latents) - 1 - i if deepest_first is not latents else i
        turn = 1 - 2 * latents[i]

        of_later = jnp.zeros_like(turn)
        if i + 1 < len(latents):
            weight = proposal.scale * proposal.layers[i + 1].weights[0]
            of_later = change_of_children(latents[i + 1], logits[i + 1], weight, turn)
        if depth + 1 == len(latents):
            child, of_child, layer = self.batch.observation, model.observation_logits(deepest_first), model.likelihood
        elif model.proposal is None:  # log P(h | c) is no part of log f
            return jnp.zeros_like(turn), of_later
        else:
            child, layer = deepest_first[depth + 1], model.prior.layers[depth + 1]
            of_child = self._prior_logits(deepest_first)[depth + 1]
        change = change_of_children(child, of_child, model.prior.scale * layer.weights[0], turn)
        if model.proposal is None:
            return change, of_later
        own = turn * (self._prior_logits(deepest_first)[depth] - logits[i])
        return change + own - of_later, of_later

    def _prior_logits(self, deepest_first: Latents) -> Logits:
        source = self.model.centre_context(self.batch.context)
        return self.model.prior.walk(lambda i, _: deepest_first[i], source)[1]
