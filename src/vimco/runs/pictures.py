"""The pictures of a run: its curves, and what its model has learned."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.models import SigmoidBeliefNetwork
from vimco.runs.directory import Run, Weights
from vimco.runs.experiment import Experiment, Purpose, key_for, precision
from vimco.runs.store import write_atomically
from vimco.samples import Batch, Examples


def draw_curves(run: Run) -> Path:
    """Writes `curves.png` into the run directory."""
    from vimco.runs import figures  # matplotlib is slow to import, and seldom needed

    config = run.config
    estimator = " ".join((config.estimator, *config.estimator_options))
    title = f"{config.data}, {config.task}, {estimator}, K = {config.num_samples}, seed {config.seed}"
    path = run.path / "curves.png"
    write_atomically(path, figures.figure_bytes(figures.curves(run.metrics(), title)))
    return path


def draw_samples(
    run: Run,
    output: Path | None = None,
    *,
    rows: int = 6,
    columns: int = 12,
    weights: Weights = "best",
    seed: int = 0,
) -> Path:
    """Writes a picture of test images and what the model makes of them: `samples.png`, if no name is given."""
    from vimco.runs import figures

    make = completions if run.config.task == "structured" else samples_and_reconstructions
    with precision(run.config):
        examples = Experiment(run.config, run.dataset()).examples("test")
        images = make(run.model(weights), key_for(Purpose.PICTURES, seed), examples, columns, rows)
    path = output or run.path / "samples.png"
    write_atomically(path, figures.figure_bytes(figures.image_grid(images, run.image_shape)))
    return path


@eqx.filter_jit
def generated(model: SigmoidBeliefNetwork, key: PRNGKeyArray, context: Float[Array, "B C"]) -> Float[Array, "B D"]:
    """P(x_i = 1 | h) given one draw h ~ P(h | c) for each context."""
    latents, _ = model.sample(key, context)
    return model.observation_probabilities(latents)[0]


@eqx.filter_jit
def reconstructed(model: SigmoidBeliefNetwork, key: PRNGKeyArray, batch: Batch) -> Float[Array, "B D"]:
    """P(x_i = 1 | h) given one draw h ~ Q(h | x, c) for each example."""
    latents, _ = model.proposal_sample(key, jnp.arange(1), batch)
    return model.observation_probabilities(latents)[0]


def samples_and_reconstructions(
    model: SigmoidBeliefNetwork, key: PRNGKeyArray, examples: Examples, columns: int = 12, rows: int = 4
) -> dict[str, np.ndarray]:
    """Rows of images by their titles, each (columns, D): data, their reconstructions, then draws from the model."""
    keys = jax.random.split(key, rows + 2)
    batch = _some(keys[0], examples, columns)
    pictures = {
        "data": np.asarray(batch.observation),
        "reconstructions": np.asarray(reconstructed(model, keys[1], batch)),
    }
    for number, key_of_row in enumerate(keys[2:], start=1):
        pictures[f"samples {number}"] = np.asarray(generated(model, key_of_row, batch.context))
    return pictures


def completions(
    model: SigmoidBeliefNetwork, key: PRNGKeyArray, examples: Examples, columns: int = 12, rows: int = 6
) -> dict[str, np.ndarray]:
    """Supplement E: the original images on top, then the same top halves, each with the bottom half's probabilities
    given one draw from the prior."""
    keys = jax.random.split(key, rows + 1)
    batch = _some(keys[0], examples, columns)
    context = np.asarray(batch.context)
    pictures = {"originals": np.concatenate([context, np.asarray(batch.observation)], axis=1)}
    for number, key_of_row in enumerate(keys[1:], start=1):
        bottom = generated(model, key_of_row, batch.context)
        pictures[f"completions {number}"] = np.concatenate([context, bottom], axis=1)
    return pictures


def _some(key: PRNGKeyArray, examples: Examples, number: int) -> Batch:
    """A seeded choice: some data sets are sorted, so their first images are all of a kind."""
    rows = jax.random.choice(key, len(examples), (number,), replace=number > len(examples))
    return examples.batch(rows, jnp.result_type(float))
