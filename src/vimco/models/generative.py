"""The generative model, without a context; its proposal runs from the observation upwards."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.models.family import MODELS, whole
from vimco.models.layers import BernoulliLayer, with_data_bias
from vimco.models.pictures import samples_and_reconstructions
from vimco.models.sbn import Chain, Proposal, SigmoidBeliefNetwork
from vimco.parameters import Centre
from vimco.samples import Batch


class UpwardProposal(Proposal):
    """Q(h | x) = Q(h^L | x) Π_l Q(h^l | h^{l+1}): the model's chain in the other direction, over x − x̄."""

    chain: Chain
    centre: Centre

    is_upward: ClassVar[bool] = True

    def inputs(self, batch: Batch) -> tuple[Float[Array, "B D"], None]:
        """Return x − x̄."""
        return self.centre(batch.observation), None


@MODELS.register(
    "generative",
    "generative SBN",
    divide=whole,
    pictures=samples_and_reconstructions,
    page=lambda _model: "generative",
)
def generative_sbn(
    key: PRNGKeyArray,
    layers: tuple[int, ...],
    observation_mean: Float[Array | np.ndarray, "D"],
    symmetric: bool = False,
    slice_size: int | None = None,
) -> SigmoidBeliefNetwork:
    """Model whole images with a sigmoid belief network.

    Return P(x, h) with latent `layers` from the deepest to the one next to x, (200, 200, 200) in the paper. The
    proposal's input is centred by `observation_mean`, which also sets the initial bias of the observation.
    """
    keys = jax.random.split(key, 3)
    observation_mean = jnp.asarray(observation_mean)  # NumPy's has another precision
    (D,), dtype = observation_mean.shape, observation_mean.dtype
    return SigmoidBeliefNetwork(
        prior=Chain(keys[0], (0, *layers), symmetric=symmetric, dtype=dtype),
        likelihood=with_data_bias(BernoulliLayer(keys[1], (layers[-1],), D, dtype), observation_mean),
        centre_context=Centre(jnp.zeros(0, dtype)),
        proposal=UpwardProposal(
            Chain(keys[2], (D, *layers[::-1]), symmetric=symmetric, dtype=dtype), Centre(observation_mean)
        ),
        slice_size=slice_size,
    )
