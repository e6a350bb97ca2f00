"""Gaussian latents with deterministic tanh layers: the models of Burda, Grosse & Salakhutdinov (2015)."""

import math
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.errors import UsageError
from vimco.models.family import MODELS, whole
from vimco.models.kernels.bernoulli import log_bernoulli, sample_bernoulli
from vimco.models.layers import Dense, with_data_bias
from vimco.models.pictures import samples_and_reconstructions
from vimco.models.slices import in_slices
from vimco.parameters import Centre
from vimco.samples import Batch, ImportanceSamples, Latents

LOG_2_PI = math.log(2 * math.pi)


class TanhNetwork(eqx.Module):
    """Two deterministic layers of tanh units, and linear outputs of the given widths."""

    hidden: tuple[Dense, Dense]
    outputs: tuple[Dense, ...]

    def __init__(
        self, key: PRNGKeyArray, size: int, hidden: int, widths: tuple[int, ...], dtype: jnp.dtype | None = None
    ):
        first, second, *keys = jax.random.split(key, 2 + len(widths))
        self.hidden = (Dense(first, size, hidden, dtype), Dense(second, hidden, hidden, dtype))
        self.outputs = tuple(Dense(k, hidden, width, dtype) for k, width in zip(keys, widths, strict=True))

    def __call__(self, x: Float[Array, "*B m"]) -> tuple[Float[Array, "*B _"], ...]:
        """Return the outputs."""
        for layer in self.hidden:
            x = jnp.tanh(layer(x))
        return tuple(output(x) for output in self.outputs)


class GaussianModel(eqx.Module):
    """P(x, z) = N(z_n; 0, I) Π_l N(z_l | z_{l+1}) P(x | z_1), and Q(z | x) = Q(z_1 | x) Π_l Q(z_{l+1} | z_l).

    Between two stochastic layers lie two deterministic ones of tanh units. Means are linear, standard deviations
    exponentials of linear functions, the observation is binary. Latents are reparameterised, z = μ + σ ε, so samples
    carry gradients, and the pathwise estimator can train the model. Latents are listed deepest layer first.
    """

    prior: tuple[TanhNetwork, ...]  # of every layer but the deepest, deepest first
    likelihood: TanhNetwork
    proposal: tuple[TanhNetwork, ...]  # of every layer, the one next to x first
    centre: Centre
    slice_size: int | None = eqx.field(static=True, default=None)

    heeds_parts: ClassVar[bool] = True

    def importance_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return K draws from the proposal for each example, with gradients through the latents."""
        return in_slices(lambda n: self.weighted(self.noise(key, n, batch), batch), num_samples, self.slice_size)

    def attached_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return `importance_samples`, since its latents are always attached."""
        return self.importance_samples(key, batch, num_samples)

    def frozen_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return `importance_samples` with the frozen log-weights of STL and DReG (see `frozen_weighted`)."""
        return in_slices(lambda n: self.frozen_weighted(self.noise(key, n, batch), batch), num_samples, self.slice_size)

    def noise(self, key: PRNGKeyArray, numbers: Int[Array, "K"], batch: Batch) -> Latents:
        """Return ε of every layer, deepest first. The noise of a sample depends on the key and its number alone."""
        widths = [network.outputs[0].bias.shape[0] for network in self.proposal[::-1]]
        dtype, B, part = self.centre.mean.dtype, batch.observation.shape[0], batch.part

        def of_sample(number: Int[Array, ""]) -> Float[Array, "B n"]:
            shape = (B if part is None else B * part.count, sum(widths))
            noise = jax.random.normal(jax.random.fold_in(key, number), shape, dtype)
            return noise if part is None else part.of(noise)

        ends = [sum(widths[:i]) for i in range(1, len(widths))]
        return tuple(jnp.split(jax.vmap(of_sample)(numbers), ends, axis=-1))

    def weighted(self, noise: Latents, batch: Batch) -> ImportanceSamples:
        """Return the importance samples of given noise. No latent has a score, since all are reparameterised."""
        latents, log_proposal = self._transformed(noise, batch)
        log_joint = self.log_joint(latents, batch)
        return ImportanceSamples(log_joint, log_proposal, log_score=jnp.zeros_like(log_joint), latents_attached=True)

    def frozen_weighted(self, noise: Latents, batch: Batch) -> ImportanceSamples:
        """Return the importance samples for STL and DReG.

        `log_joint` holds the latents constant, and the frozen log-weights hold all parameters constant. A latent stays
        attached where it conditions the next layer, so that DReG is exact for any number of layers.
        """
        latents, log_proposal = self._transformed(noise, batch)
        frozen = stop_gradient(self)
        return ImportanceSamples(
            self.log_joint(stop_gradient(latents), batch),
            stop_gradient(log_proposal),
            log_score=jnp.zeros_like(log_proposal),
            frozen_log_weights=frozen.log_joint(latents, batch) - frozen.log_proposal(latents, batch),
            latents_attached=True,
        )

    def log_joint(self, latents: Latents, batch: Batch) -> Float[Array, "K B"]:
        """Return log P(x, z) of given latents."""
        log_prob = log_normal(latents[0], jnp.zeros(1), jnp.zeros(1))
        for network, parent, value in zip(self.prior, latents[:-1], latents[1:], strict=True):
            log_prob = log_prob + log_normal(value, *network(parent))
        return log_prob + log_bernoulli(batch.observation, self.observation_logits(latents))

    def log_proposal(self, latents: Latents, batch: Batch) -> Float[Array, "K B"]:
        """Return log Q(z | x) of given latents."""
        parents = (self.centre(batch.observation), *latents[:0:-1])
        terms = [
            log_normal(value, *network(parent))
            for network, parent, value in zip(self.proposal, parents, latents[::-1], strict=True)
        ]
        return sum(terms[1:], start=terms[0])

    def proposal_sample(
        self, key: PRNGKeyArray, numbers: Int[Array, "K"], batch: Batch
    ) -> tuple[Latents, Float[Array, "K B"]]:
        """Return latents drawn from the proposal for each of the sample numbers, and log Q of them."""
        return self._transformed(self.noise(key, numbers, batch), batch)

    def sample(self, key: PRNGKeyArray, context: Float[Array, "B C"]) -> tuple[Latents, Float[Array, "1 B D"]]:
        """Return one draw (z, x) ~ P(x, z) for each row of the (empty) context."""
        key_of_latents, key_of_observation = jax.random.split(key)
        one = jnp.arange(1)
        deepest, *others = self.noise(key_of_latents, one, Batch(context))
        latents: Latents = (deepest,)
        for network, noise in zip(self.prior, others, strict=True):
            mean, log_scale = network(latents[-1])
            latents = (*latents, mean + jnp.exp(log_scale) * noise)
        return latents, sample_bernoulli(key_of_observation, one, self.observation_logits(latents))

    def observation_logits(self, latents: Latents) -> Float[Array, "K B D"]:
        """Return the logits of P(x | z_1)."""
        return self.likelihood(latents[-1])[0]

    def observation_probabilities(self, latents: Latents) -> Float[Array, "K B D"]:
        """Return P(x_i = 1 | z) for every pixel, which pictures show."""
        return jax.nn.sigmoid(self.observation_logits(latents))

    def posterior_means(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> tuple[Float[Array, "B _"], ...]:
        """Return E_Q[z_l | x] of every layer, deepest first; above the first layer, averaged over samples."""
        parent = self.centre(batch.observation)
        means: tuple[Array, ...] = ()
        for network, noise in zip(self.proposal, self.noise(key, jnp.arange(num_samples), batch)[::-1], strict=True):
            mean, log_scale = network(parent)
            means = (mean if mean.ndim == 2 else jnp.mean(mean, axis=0), *means)
            parent = mean + jnp.exp(log_scale) * noise
        return means

    def _transformed(self, noise: Latents, batch: Batch) -> tuple[Latents, Float[Array, "K B"]]:
        """Return z = μ + σ ε, layer by layer from x upwards, and log Q of them."""
        parent: Array = self.centre(batch.observation)
        latents: Latents = ()
        log_prob: Array = jnp.zeros((), parent.dtype)
        for network, epsilon in zip(self.proposal, noise[::-1], strict=True):
            mean, log_scale = network(parent)
            parent = mean + jnp.exp(log_scale) * epsilon
            latents = (parent, *latents)
            # log N(z; μ, σ) with (z − μ) / σ = ε; the gradient through z and that through μ and σ cancel there
            log_prob = log_prob - jnp.sum((epsilon**2 + LOG_2_PI) / 2 + log_scale, axis=-1)
        return latents, log_prob


def log_normal(
    value: Float[Array, "*#B n"], mean: Float[Array, "*#B #n"], log_scale: Float[Array, "*#B #n"]
) -> Float[Array, "*B"]:
    """Return log Π_i N(v_i; μ_i, exp(log σ_i)²), over the last axis."""
    standard = (value - mean) * jnp.exp(-log_scale)
    return -jnp.sum((standard**2 + LOG_2_PI) / 2 + log_scale, axis=-1)


@MODELS.register("gaussian", "Gaussian model", divide=whole, pictures=samples_and_reconstructions)
def gaussian_model(
    key: PRNGKeyArray,
    layers: tuple[int, ...],
    observation_mean: Float[Array | np.ndarray, "D"],
    slice_size: int | None = None,
    *,
    hidden: Annotated[tuple[int, ...] | None, "Tanh units above each layer, deepest first; 100s, then 200."] = None,
) -> GaussianModel:
    """Model whole images with Gaussian latents and tanh layers (Burda et al., 2015).

    Return P(x, z) with stochastic `layers` from the deepest to the one next to x: (50,) or (50, 100) in the paper.
    `hidden` are the widths of the tanh units above x and above each layer but the deepest, in the same order: by
    default 200 next to x and 100 elsewhere. The proposal's input is centred by `observation_mean`, which also sets
    the initial bias of the observation.
    """
    if hidden is None:
        hidden = (*((100,) * (len(layers) - 1)), 200)
    if len(hidden) != len(layers):
        raise UsageError(f"A Gaussian model needs as many hidden widths as layers; got {hidden} for layers {layers}.")
    if min(hidden) < 1:
        raise UsageError(f"A tanh layer has one unit or more; got {hidden}.")
    keys = jax.random.split(key, 3)
    observation_mean = jnp.asarray(observation_mean)  # NumPy's has another precision
    (D,), dtype = observation_mean.shape, observation_mean.dtype
    below = (*layers[1:], D)  # the widths next to each layer, towards x
    prior = [
        TanhNetwork(k, size, width, (child, child), dtype)
        for k, size, width, child in zip(
            jax.random.split(keys[0], len(layers)), layers[:-1], hidden[:-1], layers[1:], strict=False
        )
    ]
    proposal = [
        TanhNetwork(k, size, width, (layer, layer), dtype)
        for k, size, width, layer in zip(
            jax.random.split(keys[2], len(layers)), below[::-1], hidden[::-1], layers[::-1], strict=True
        )
    ]
    likelihood = TanhNetwork(keys[1], layers[-1], hidden[-1], (D,), dtype)
    likelihood = eqx.tree_at(
        lambda n: n.outputs, likelihood, (with_data_bias(likelihood.outputs[0], observation_mean),)
    )
    return GaussianModel(tuple(prior), likelihood, tuple(proposal), Centre(observation_mean), slice_size)
