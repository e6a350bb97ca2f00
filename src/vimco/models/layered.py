"""The binary layers of a sigmoid belief network, one by one, for estimators that look inside log f."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from vimco.models.kernels.bernoulli import log_bernoulli
from vimco.models.kernels.flips import change_of_children
from vimco.samples import Batch, Choice, Latents, Logits

if TYPE_CHECKING:
    from vimco.models.sbn import SigmoidBeliefNetwork


class LayersOfSBN(eqx.Module):
    """A sigmoid belief network at one batch, as `vimco.samples.BinaryChain`."""

    model: "SigmoidBeliefNetwork"
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
        likelihood = log_bernoulli(self.batch.observation, self.model.observation_logits(self._deepest_first(latents)))
        if self.model.proposal is None:
            return (*(jnp.zeros_like(likelihood) for _ in latents[1:]), likelihood)
        log_q = self.log_proposals(latents, logits)
        deepest_first = self._deepest_first(latents)
        log_p = tuple(map(log_bernoulli, deepest_first, self._prior_logits(deepest_first)))
        if self.model.proposal.is_upward:
            deepest, *others = log_p
            log_p = (likelihood, *others[::-1])
            last = deepest
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
        deepest_first = self._deepest_first(latents)
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

    def _deepest_first(self, latents: Latents) -> Latents:
        return self.model.deepest_first(latents)

    def _prior_logits(self, deepest_first: Latents) -> Logits:
        source = self.model.centre_context(self.batch.context)
        return self.model.prior.walk(lambda i, _: deepest_first[i], source)[1]
