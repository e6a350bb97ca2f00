"""Sigmoid belief networks: a chain of Bernoulli layers, and the model that is made of chains."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.models.kernels.bernoulli import log_bernoulli, log_bernoulli_of_layers, sample_bernoulli
from vimco.models.kernels.products import with_stored_gradient
from vimco.models.kernels.randomness import fold_in
from vimco.models.layers import BernoulliLayer
from vimco.models.slices import in_slices
from vimco.parameters import Centre
from vimco.samples import Batch, ImportanceSamples

Latents = tuple[Float[Array, "K B _"], ...]


class Chain(eqx.Module):
    """Bernoulli layers, each the parent of the next; `source` is the parent of the first.

    `side` is one more parent of the last layer, if that was built with two. With `symmetric` a layer sees its binary
    parent as ±1 in place of 0/1; source and side are taken as they are.
    """

    layers: tuple[BernoulliLayer, ...]
    symmetric: bool = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        sizes: tuple[int, ...],
        side_size: int | None = None,
        symmetric: bool = False,
        dtype: jnp.dtype | None = None,
    ):
        """`sizes` are the widths of the source and of each layer; `side_size` that of the side input, if any."""
        keys = jax.random.split(key, len(sizes) - 1)
        layers = []
        for i, (size, key_of_layer) in enumerate(zip(sizes[1:], keys, strict=True)):
            is_last = i == len(sizes) - 2
            parents = (sizes[i], side_size) if is_last and side_size is not None else (sizes[i],)
            layers.append(BernoulliLayer(key_of_layer, parents, size, dtype))
        self.layers = tuple(layers)
        self.symmetric = symmetric

    def sample(
        self,
        key: PRNGKeyArray,
        numbers: Int[Array, "K"],
        source: Float[Array, "B _"],
        side: Float[Array, "B _"] | None = None,
    ) -> tuple[Latents, Float[Array, "K B"]]:
        """One latent vector per layer for each sample number, in the chain's order, and their log-probability."""
        latents: Latents = ()
        logits: tuple[Array, ...] = ()
        for i in range(len(self.layers)):
            logits = (*logits, self._logits(i, source, side, latents))
            latents = (*latents, sample_bernoulli(fold_in(key, i), numbers, logits[i]))
        return latents, log_bernoulli_of_layers(latents, logits)

    def log_prob(
        self, latents: Latents, source: Float[Array, "B _"], side: Float[Array, "B _"] | None = None
    ) -> Float[Array, "K B"]:
        """The log-probability of given latents, which are in the chain's order."""
        logits = tuple(self._logits(i, source, side, latents) for i in range(len(self.layers)))
        return log_bernoulli_of_layers(latents, logits)

    def recoded(self, latent: Float[Array, "K B n"]) -> Float[Array, "K B n"]:
        """A latent vector as its children see it."""
        return 2 * latent - 1 if self.symmetric else latent

    def _logits(
        self, i: int, source: Float[Array, "B _"], side: Float[Array, "B _"] | None, latents: Latents
    ) -> Float[Array, "... B n"]:
        parent = source if i == 0 else self.recoded(latents[i - 1])
        is_last = i == len(self.layers) - 1
        return self.layers[i](parent, side) if is_last and side is not None else self.layers[i](parent)


class Proposal(eqx.Module):
    """Q(h | x, c): a distribution over the latents that may look at the observation."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, numbers: Int[Array, "K"], batch: Batch) -> tuple[Latents, Float[Array, "K B"]]:
        """Latents, deepest layer first, for each of the sample numbers, and log Q of them."""

    @abc.abstractmethod
    def log_prob(self, latents: Latents, batch: Batch) -> Float[Array, "K B"]:
        """log Q(h | x, c) of given latents, deepest layer first."""


class SigmoidBeliefNetwork(eqx.Module):
    """P(x, h | c) = P(h¹ | c) Π_l P(h^l | h^{l−1}) P(x | h^L), and a proposal Q(h | x, c). h¹ is the deepest layer.

    Without a proposal the prior P(h | c) takes its place (Eq. 1): log P(h | c) then stands in both fields of the
    importance samples, and log f is log P(x | h, c).

    `slice_size` bounds the memory of many samples: K is worked through in slices, forward and again backward.
    """

    prior: Chain
    likelihood: BernoulliLayer
    centre_context: Centre
    proposal: Proposal | None
    slice_size: int | None = eqx.field(static=True, default=None)

    def importance_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """K = `num_samples` draws from the proposal for each example, with their log-probabilities."""

        def weighted(numbers: Int[Array, "k"]) -> ImportanceSamples:
            latents, log_proposal = self.proposal_sample(key, numbers, batch)
            # The very same values where the prior is the proposal: their gradients then cancel in log f.
            log_prior = log_proposal if self.proposal is None else self._log_prior(latents, batch)
            return self._record(latents, log_prior, log_proposal, batch)

        return in_slices(weighted, num_samples, self.slice_size)

    def proposal_sample(
        self, key: PRNGKeyArray, numbers: Int[Array, "K"], batch: Batch
    ) -> tuple[Latents, Float[Array, "K B"]]:
        """Latents, deepest layer first, drawn from the proposal for each of the sample numbers, and log Q of them."""
        if self.proposal is None:
            return self.prior.sample(key, numbers, self.centre_context(batch.context))
        return self.proposal.sample(key, numbers, batch)

    def weighted(self, latents: Latents, batch: Batch) -> ImportanceSamples:
        """The importance samples that given latents (deepest layer first) would make."""
        log_prior = self._log_prior(latents, batch)
        log_proposal = log_prior if self.proposal is None else self.proposal.log_prob(latents, batch)
        return self._record(latents, log_prior, log_proposal, batch)

    def sample(self, key: PRNGKeyArray, context: Float[Array, "B C"]) -> tuple[Latents, Float[Array, "1 B D"]]:
        """One draw (h, x) ~ P(x, h | c) for each context: latents, deepest layer first, and observations."""
        key_of_latents, key_of_observation = jax.random.split(key)
        one = jnp.arange(1)
        latents, _ = self.prior.sample(key_of_latents, one, self.centre_context(context))
        return latents, sample_bernoulli(key_of_observation, one, self.observation_logits(latents))

    def log_proposal_of_dreams(self, key: PRNGKeyArray, batch: Batch) -> Float[Array, "B"]:
        """log Q(h | x, c) at one dream (x, h) ~ P(x, h | c) for each context of the batch (Eq. 12)."""
        latents, observation = self.sample(key, batch.context)
        dream = Batch(observation[0], batch.context)
        if self.proposal is None:
            return self._log_prior(latents, dream)[0]
        return self.proposal.log_prob(latents, dream)[0]

    def observation_logits(self, latents: Latents) -> Float[Array, "K B D"]:
        """The logits of P(x | h^L)."""
        return self.likelihood(self.prior.recoded(latents[-1]))

    def observation_probabilities(self, latents: Latents) -> Float[Array, "K B D"]:
        """P(x_i = 1 | h) for every pixel: what pictures show."""
        return jax.nn.sigmoid(self.observation_logits(latents))

    def _log_prior(self, latents: Latents, batch: Batch) -> Float[Array, "K B"]:
        return self.prior.log_prob(latents, self.centre_context(batch.context))

    def _record(
        self, latents: Latents, log_prior: Float[Array, "K B"], log_proposal: Float[Array, "K B"], batch: Batch
    ) -> ImportanceSamples:
        log_likelihood = log_bernoulli(batch.observation, self.observation_logits(latents))
        return ImportanceSamples(
            with_stored_gradient(log_prior + log_likelihood),
            with_stored_gradient(log_proposal),
            proposal_is_prior=self.proposal is None,
        )


def with_data_bias(layer: BernoulliLayer, mean: Float[Array, "n"]) -> BernoulliLayer:
    """The layer with the bias under which its units are on as often as in the data; a pixel never on gets 1 in 1000."""
    mean = jnp.clip(mean, 1e-3, 1 - 1e-3)
    return eqx.tree_at(lambda layer: layer.bias, layer, jnp.log(mean) - jnp.log1p(-mean))
