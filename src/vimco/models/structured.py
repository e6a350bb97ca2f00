"""The structured-prediction model P(x, h | c): its prior, or a learned proposal, runs from the context to x."""

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.data import halves
from vimco.errors import UsageError, check_choice
from vimco.models.family import MODELS, Source
from vimco.models.layers import BernoulliLayer, with_data_bias
from vimco.models.pictures import completions
from vimco.models.sbn import Chain, Proposal, SigmoidBeliefNetwork
from vimco.parameters import Centre
from vimco.samples import Batch


class DownwardProposal(Proposal):
    """Q(h | x, c): a chain like the prior's, with weights of its own, whose last layer also sees x − x̄ (Sec. 5.2)."""

    chain: Chain
    centre_context: Centre
    centre_observation: Centre

    is_upward: ClassVar[bool] = False

    def inputs(self, batch: Batch) -> tuple[Float[Array, "B C"], Float[Array, "B D"]]:
        """Return c − c̄ and x − x̄."""
        return self.centre_context(batch.context), self.centre_observation(batch.observation)


def _page(model: SigmoidBeliefNetwork) -> str:
    """Return what the page of a model says that it does; refuse units that the page does not know."""
    if model.prior.deterministic:
        raise UsageError("The page shows layers of binary units; this model has deterministic ones, and has no page.")
    return "bottom half from top half"


@MODELS.register("structured", "structured SBN", divide=halves, pictures=completions, page=_page)
def structured_sbn(
    key: PRNGKeyArray,
    layers: tuple[int, ...],
    observation_mean: Float[Array | np.ndarray, "D"],
    context_mean: Float[Array | np.ndarray, "C"],
    proposal: Source = "learned",
    symmetric: bool = False,
    slice_size: int | None = None,
    *,
    deterministic: Annotated[int, "Deterministic units of each layer of the prior, besides the binary ones."] = 0,
) -> SigmoidBeliefNetwork:
    """Predict the bottom half of an image from its top half with a sigmoid belief network.

    Return P(x, h | c) with latent `layers` from the one next to the context to the one next to x. Context and
    observation are centred by their means wherever they are inputs of a chain. The prior has `deterministic` units in
    each layer besides the binary ones (Tang & Salakhutdinov, 2013).
    """
    check_choice("proposal", proposal, Source)
    if deterministic < 0:
        raise UsageError(f"A layer has 0 or more deterministic units; got {deterministic}.")
    keys = jax.random.split(key, 3)
    observation_mean, context_mean = jnp.asarray(observation_mean), jnp.asarray(context_mean)
    (D,), (C,), dtype = observation_mean.shape, context_mean.shape, observation_mean.dtype
    learned = DownwardProposal(
        Chain(keys[2], (C, *layers), side_size=D, symmetric=symmetric, dtype=dtype),
        Centre(context_mean),
        Centre(observation_mean),
    )
    return SigmoidBeliefNetwork(
        prior=Chain(keys[0], (C, *layers), symmetric=symmetric, dtype=dtype, deterministic=deterministic),
        likelihood=with_data_bias(BernoulliLayer(keys[1], (layers[-1] + deterministic,), D, dtype), observation_mean),
        centre_context=Centre(context_mean),
        proposal=learned if proposal == "learned" else None,
        slice_size=slice_size,
    )
