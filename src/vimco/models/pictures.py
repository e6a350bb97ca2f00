"""The pictures of a model: rows of images, by their titles.

The model is any with the methods `sample`, `proposal_sample` and `observation_probabilities`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.samples import Batch, Examples


@eqx.filter_jit
def generated(model: Any, key: PRNGKeyArray, context: Float[Array, "B C"]) -> Float[Array, "B D"]:
    """Return P(x_i = 1 | h) given one draw h ~ P(h | c) for each context."""
    latents, _ = model.sample(key, context)
    return model.observation_probabilities(latents)[0]


@eqx.filter_jit
def reconstructed(model: Any, key: PRNGKeyArray, batch: Batch) -> Float[Array, "B D"]:
    """Return P(x_i = 1 | h) given one draw h ~ Q(h | x, c) for each example."""
    latents, _ = model.proposal_sample(key, jnp.arange(1), batch)
    return model.observation_probabilities(latents)[0]


def samples_and_reconstructions(
    model: Any, key: PRNGKeyArray, examples: Examples, columns: int = 12, rows: int = 4
) -> dict[str, np.ndarray]:
    """Return rows of images by their titles, each (columns, D): data, reconstructions, then draws from the model."""
    keys = jax.random.split(key, rows + 2)
    batch = random_choice(keys[0], examples, columns)
    pictures = {
        "data": np.asarray(batch.observation),
        "reconstructions": np.asarray(reconstructed(model, keys[1], batch)),
    }
    for number, key_of_row in enumerate(keys[2:], start=1):
        pictures[f"samples {number}"] = np.asarray(generated(model, key_of_row, batch.context))
    return pictures


def completions(
    model: Any, key: PRNGKeyArray, examples: Examples, columns: int = 12, rows: int = 6
) -> dict[str, np.ndarray]:
    """Return the rows of supplement E: the original images, then the same top halves, each with the bottom half's
    probabilities given one draw from the prior."""
    keys = jax.random.split(key, rows + 1)
    batch = random_choice(keys[0], examples, columns)
    context = np.asarray(batch.context)
    pictures = {"originals": np.concatenate([context, np.asarray(batch.observation)], axis=1)}
    for number, key_of_row in enumerate(keys[1:], start=1):
        bottom = generated(model, key_of_row, batch.context)
        pictures[f"completions {number}"] = np.concatenate([context, bottom], axis=1)
    return pictures


def random_choice(key: PRNGKeyArray, examples: Examples, number: int) -> Batch:
    """Return a seeded random choice of examples: the first images of a sorted data set would be all alike."""
    rows = jax.random.choice(key, len(examples), (number,), replace=number > len(examples))
    return examples.batch(rows, jnp.result_type(float))
