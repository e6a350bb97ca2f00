"""Hard attention: a recurrent network looks at a few places of an image, and names what it has seen.

The model of Mnih et al. (2014) and Ba et al. (2015), with places on a grid.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.data import image_and_label
from vimco.data.dataset import NUM_LABELS
from vimco.errors import UsageError, check_choice
from vimco.models.family import MODELS, Source
from vimco.models.kernels.randomness import sample_words
from vimco.models.layers import Dense
from vimco.models.pictures import random_choice
from vimco.models.slices import T, in_slices
from vimco.samples import Batch, Examples, ImportanceSamples

COARSE = 4  # pixels of the image for each that the proposal sees, in each direction

PlaceChoice = Callable[[int, Float[Array, "K B G"]], Int[Array, "K B"]]  # place number t, from its log-probabilities


class Retina(eqx.Module):
    """What can be seen of an image from each place of a grid: a square of `patch` pixels, at several scales.

    At scale s = 0, 1, ... a pixel of the patch is the mean of 2^s x 2^s pixels around the same centre; outside the
    image is black. The finest patches of the outermost places end where the image ends.
    """

    image_shape: tuple[int, int] = eqx.field(static=True)
    grid: int = eqx.field(static=True)  # places in each direction
    patch: int = eqx.field(static=True)
    scales: int = eqx.field(static=True)

    def __call__(self, images: Float[Array, "B D"]) -> Float[Array, "B G n"]:
        """Return the glimpses from all places, as two products for each scale: no pixel is gathered."""
        pictures = images.reshape(-1, *self.image_shape)
        glimpses = []
        for scale in range(self.scales):
            rows, columns = (jnp.asarray(m, images.dtype) for m in self.windows(scale))
            seen = jnp.einsum("gph,bhw,kqw->bgkpq", rows, pictures, columns, optimize="optimal")
            glimpses.append(seen.reshape(len(images), self.grid**2, self.patch**2))
        return jnp.concatenate(glimpses, axis=-1)

    def windows(self, scale: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how much of each row, and of each column, each pixel of a patch holds: (grid, patch, size)."""
        width = 2**scale
        around = self.patch // 2 - self.patch * width // 2
        rows, columns = (
            averages(np.round(np.linspace(0, size - self.patch, self.grid)) + around, self.patch, width, size)
            for size in self.image_shape
        )
        return rows, columns


def averages(starts: np.ndarray, number: int, width: int, size: int) -> np.ndarray:
    """Return matrices that average `number` times `width` of `size` pixels, from each start on: (starts, number, size).

    Pixels that are not there count as zeros.
    """
    first = (starts[:, None] + width * np.arange(number))[..., None]
    pixel = np.arange(size)
    return ((pixel >= first) & (pixel < first + width)) / width


class PlaceProposal(eqx.Module):
    """Q(a | image, y) = Π_t Q(a_t | a_1 ... a_{t−1}, image, y), by a network that shares nothing with the model.

    It sees the whole image at a quarter of its resolution, the label, and the places so far. If it saw the state of
    the model's core, the wake update would leak into the core, which is to follow Σ_k w̃_k ∇ log P alone; and with that
    path cut, the gradient of L^K would lack the core's part in Q. As it is, every estimator finds its own gradient.
    """

    image: Dense
    label: Float[Array, "y H"]
    earlier: Float[Array, "G H"]
    number: Float[Array, "T H"]
    output: Dense
    image_shape: tuple[int, int] = eqx.field(static=True)

    def features(self, batch: Batch) -> Float[Array, "B H"]:
        """Return what does not depend on the places."""
        rows, columns = (
            jnp.asarray(averages(np.zeros(1), -(-size // COARSE), COARSE, size)[0], batch.context.dtype)
            for size in self.image_shape
        )
        pictures = batch.context.reshape(-1, *self.image_shape)
        coarse = jnp.einsum("ph,bhw,qw->bpq", rows, pictures, columns, optimize="optimal")
        return self.image(coarse.reshape(len(pictures), -1)) + batch.observation @ self.label

    def __call__(self, t: int, features: Float[Array, "*K B H"]) -> Float[Array, "*K B G"]:
        """Return log Q of every place, from the features and the places so far."""
        return jax.nn.log_softmax(self.output(jax.nn.relu(features + self.number[t])))


class Paths(NamedTuple):
    """K paths for each example, and their log-probabilities."""

    places: Int[Array, "K B T"]
    log_prior: Float[Array, "K B"]  # log P(a | image)
    log_proposal: Float[Array, "K B"]  # log Q(a | image, y); without a learned proposal log P(a | image)
    log_labels: Float[Array, "K B y"]  # log P(y | a, image), for every label


class AttentionModel(eqx.Module):
    """P(y, a | image) = Π_t P(a_t | s_{t−1}) P(y | s_T): a place is chosen, a glimpse seen, and the state moves on.

    s_t = relu(W s_{t−1} + U relu(V x(a_t) + e(a_t)) + b) from s_0 = 0, with x(a) the glimpse from place a; places and
    label have softmax distributions. The context is the image, the observation its label, and the latents, the places,
    are drawn from the policy P(a | image) itself or from a learned proposal.
    """

    retina: Retina
    glimpse: Dense  # V, with e(a) as the bias of each place
    place: Float[Array, "G H"]
    input: Dense  # U, b
    recurrent: Float[Array, "H H"]
    policy: Dense
    classifier: Dense
    proposal: PlaceProposal | None
    num_glimpses: int = eqx.field(static=True)
    slice_size: int | None = eqx.field(static=True, default=None)

    heeds_parts: ClassVar[bool] = True

    def importance_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return K paths from the proposal for each example."""
        return self._drawn(lambda choose: self._record(self.paths(batch, choose), batch), key, batch, num_samples)

    def samples_with_likelihood(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return `importance_samples` with log P(y | a, image) by itself."""

        def record(choose: PlaceChoice) -> ImportanceSamples:
            paths = self.paths(batch, choose)
            return dataclasses.replace(self._record(paths, batch), log_likelihood=_of_label(paths, batch))

        return self._drawn(record, key, batch, num_samples)

    def rewarded_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return `importance_samples` with rewards (see `rewarded`)."""
        return self._drawn(lambda choose: self.rewarded(batch, choose), key, batch, num_samples)

    def rewarded(self, batch: Batch, choose: PlaceChoice) -> ImportanceSamples:
        """Return importance samples with a reward of 1 for each path whose most probable label is the right one.

        The policy sees the state without its gradient, as published: REINFORCE trains the policy alone, and the
        likelihood all the rest. The two ascend different things, and their sum in the core would ascend neither.
        """
        paths = self.paths(batch, choose, is_core_fixed=True)
        is_right = jnp.argmax(paths.log_labels, axis=-1) == jnp.argmax(batch.observation, axis=-1)
        return dataclasses.replace(self._record(paths, batch), reward=is_right.astype(paths.log_prior.dtype))

    def log_proposal_of_dreams(self, key: PRNGKeyArray, batch: Batch) -> Float[Array, "B"]:
        """Return log Q(a | image, y) at one dream (a, y) ~ P(y, a | image) for each image."""
        key_of_places, key_of_labels = jax.random.split(key)
        dream = self.drawn_paths(key_of_places, batch, jnp.arange(1))
        labels = _first_above(_uniforms(key_of_labels, jnp.arange(1), 1, batch)[:, 0], dream.log_labels)[0]
        observation = jax.nn.one_hot(labels, dream.log_labels.shape[-1], dtype=batch.observation.dtype)
        places = stop_gradient(dream.places)
        return self.paths(Batch(observation, batch.context), lambda t, _: places[..., t]).log_proposal[0]

    def label_log_probabilities(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> Float[Array, "K B y"]:
        """Return log P(y | a, image) of every label for K paths from the policy, which does not see the right one."""
        return in_slices(lambda n: self.drawn_paths(key, batch, n).log_labels, num_samples, self.slice_size)

    def drawn_paths(self, key: PRNGKeyArray, batch: Batch, numbers: Int[Array, "K"]) -> Paths:
        """Return a path from the policy for each of the sample numbers."""
        return self.paths(batch, self._chooser(key, numbers, batch), from_prior=True)

    def weighted(self, places: Int[Array, "K B T"], batch: Batch) -> ImportanceSamples:
        """Return the importance samples of given places."""
        return self._record(self.paths(batch, lambda t, _: places[..., t]), batch)

    def paths(
        self, batch: Batch, choose: PlaceChoice, *, from_prior: bool = False, is_core_fixed: bool = False
    ) -> Paths:
        """Return paths whose places are chosen one after the other, from the proposal's log-probabilities.

        `from_prior` asks the policy in place of a learned proposal. With `is_core_fixed` no gradient of the policy
        reaches the core.
        """
        proposal = None if from_prior else self.proposal
        glimpses = self.retina(batch.context)
        rows = jnp.arange(len(glimpses))
        state = jnp.zeros((1, len(glimpses), self.recurrent.shape[0]), glimpses.dtype)
        features = jnp.zeros(()) if proposal is None else proposal.features(batch)[None]
        places: list[Array] = []
        log_prior = log_proposal = jnp.zeros((), glimpses.dtype)
        for t in range(self.num_glimpses):
            prior_of_places = jax.nn.log_softmax(self.policy(stop_gradient(state) if is_core_fixed else state))
            proposal_of_places = prior_of_places if proposal is None else proposal(t, features)
            place = choose(t, proposal_of_places)
            places.append(place)
            is_there = jax.nn.one_hot(place, len(self.place), dtype=glimpses.dtype)
            log_prior = log_prior + jnp.sum(is_there * prior_of_places, axis=-1)
            if proposal is not None:
                log_proposal = log_proposal + jnp.sum(is_there * proposal_of_places, axis=-1)
                features = features + is_there @ proposal.earlier
            seen = jax.nn.relu(self.glimpse(glimpses[rows, place]) + is_there @ self.place)
            state = jax.nn.relu(state @ self.recurrent + self.input(seen))
        log_labels = jax.nn.log_softmax(self.classifier(state))
        return Paths(jnp.stack(places, axis=-1), log_prior, log_prior if proposal is None else log_proposal, log_labels)

    def _record(self, paths: Paths, batch: Batch) -> ImportanceSamples:
        return ImportanceSamples(
            paths.log_prior + _of_label(paths, batch),
            paths.log_proposal,
            proposal_is_prior=self.proposal is None,
            shared_parameters=self.proposal is None,  # the core serves policy and likelihood
        )

    def _drawn(self, function: Callable[[PlaceChoice], T], key: PRNGKeyArray, batch: Batch, num_samples: int) -> T:
        """Return what a function makes of K drawn paths, in slices."""
        return in_slices(lambda numbers: function(self._chooser(key, numbers, batch)), num_samples, self.slice_size)

    def _chooser(self, key: PRNGKeyArray, numbers: Int[Array, "K"], batch: Batch) -> PlaceChoice:
        """Return draws that depend on the key, the number of a sample, and its example's place in the batch alone."""
        uniforms = _uniforms(key, numbers, self.num_glimpses, batch)
        return lambda t, log_probabilities: _first_above(uniforms[:, t], log_probabilities)


def _uniforms(key: PRNGKeyArray, numbers: Int[Array, "K"], times: int, batch: Batch) -> Float[Array, "K T B"]:
    """Return uniform numbers for samples of the batch; those of a part are the ones that it has in the whole batch."""
    B, part = batch.context.shape[0], batch.part
    words, _ = sample_words(key, numbers, (times, B if part is None else B * part.count))
    if part is not None:
        words = jnp.moveaxis(part.of(jnp.moveaxis(words, -1, 0)), 0, -1)
    uniform = (words >> jnp.uint32(8)).astype(batch.context.dtype) * 2.0**-24
    return jnp.maximum(uniform, 2.0**-25)  # zero would be below the first choice, however improbable


def _first_above(uniform: Float[Array, "K B"], log_probabilities: Float[Array, "k B G"]) -> Int[Array, "K B"]:
    """Return a draw for each uniform number: the first choice up to which the probabilities exceed it.

    By rounding the last sum may be a little below 1. The uniform number is a share of that sum: otherwise what is above
    it would go to the last choice, however improbable.
    """
    sums = jnp.cumsum(jnp.exp(stop_gradient(log_probabilities)), axis=-1)
    choice = jnp.sum(sums <= uniform[..., None] * sums[..., -1:], axis=-1)
    return jnp.minimum(choice, sums.shape[-1] - 1)


def _of_label(paths: Paths, batch: Batch) -> Float[Array, "K B"]:
    """Return log P(y | a, image) of the right label."""
    return jnp.sum(paths.log_labels * batch.observation, axis=-1)


def places_seen(
    model: AttentionModel, key: PRNGKeyArray, examples: Examples, columns: int = 12, rows: int = 6
) -> dict[str, np.ndarray]:
    """Return images, then a row for each glimpse of one path from the policy: patches lighter, the finest lightest.

    There are as many rows as glimpses, whatever `rows` says.
    """
    del rows
    keys = jax.random.split(key)
    batch = random_choice(keys[0], examples, columns)
    paths = _one_path(model, keys[1], batch)
    images = np.asarray(batch.context)
    windows = [[m.sum(axis=1) > 0 for m in model.retina.windows(scale)] for scale in range(model.retina.scales)]
    pictures = {"images": images}
    is_right = np.argmax(paths.log_labels[0], axis=-1) == np.argmax(batch.observation, axis=-1)
    for t in range(model.num_glimpses):
        row, column = np.divmod(np.asarray(paths.places[0, :, t]), model.retina.grid)
        inside = [(down[row, :, None] & across[column, None, :]).reshape(images.shape) for down, across in windows]
        light = 0.5 / len(inside) * sum(part.astype(images.dtype) for part in inside)
        result = f"\n({is_right.sum()} of {columns}\nlabels right)" if t == model.num_glimpses - 1 else ""
        pictures[f"glimpse {t + 1}{result}"] = np.where(images > 0, 0.5 + light, 0.8 * light)
    return pictures


@eqx.filter_jit
def _one_path(model: AttentionModel, key: PRNGKeyArray, batch: Batch) -> Paths:
    return model.drawn_paths(key, batch, jnp.arange(1))


@MODELS.register("attention", "hard-attention model", divide=image_and_label, pictures=places_seen, of_scenes=True)
def attention_model(
    key: PRNGKeyArray,
    image_shape: tuple[int, int],
    proposal: Source = "learned",
    slice_size: int | None = None,
    num_labels: int = NUM_LABELS,
    *,
    glimpses: Annotated[int, "Places that it looks at, one after the other.", 1000] = 6,
    units: Annotated[int, "Units of the recurrent core, and of each network's hidden layer."] = 128,
    grid: Annotated[int, "Places in each direction.", 1000] = 7,
    patch: Annotated[int, "Pixels of a glimpse in each direction."] = 12,
    scales: Annotated[int, "Resolutions of a glimpse, each half the one before.", 20] = 3,
) -> AttentionModel:
    """Name the digit in a larger image from a few glimpses at places of its own choice (Mnih et al., 2014).

    Return P(y, a | image) for images of this shape: so many glimpses at places of a square grid, a core of `units`.
    A glimpse has `scales` patches of `patch` x `patch` pixels (see `Retina`).
    """
    check_choice("proposal", proposal, Source)
    for name, value, least in (
        ("glimpses", glimpses, 1),
        ("units", units, 1),
        ("grid", grid, 2),
        ("scales", scales, 1),
    ):
        if value < least:
            raise UsageError(f"The option {name} of an attention model is {least} or more; got {value}.")
    if not 1 <= patch <= min(image_shape):
        raise UsageError(
            f"A patch of {patch} pixels does not fit into images of {image_shape[0]} x {image_shape[1]}: choose less."
        )
    dtype, G = jnp.result_type(float), grid**2
    keys = jax.random.split(key, 10)

    def table(key: PRNGKeyArray, rows: int) -> Array:
        return Dense(key, rows, units, dtype).weight

    coarse = -(-image_shape[0] // COARSE) * -(-image_shape[1] // COARSE)
    learned = PlaceProposal(
        image=Dense(keys[6], coarse, units, dtype),
        label=table(keys[7], num_labels),
        earlier=table(keys[8], G),
        number=jnp.zeros((glimpses, units), dtype),
        output=Dense(keys[9], units, G, dtype),
        image_shape=image_shape,
    )
    return AttentionModel(
        retina=Retina(image_shape, grid, patch, scales),
        glimpse=Dense(keys[0], scales * patch**2, units, dtype),
        place=table(keys[1], G),
        input=Dense(keys[2], units, units, dtype),
        recurrent=table(keys[3], units),
        policy=Dense(keys[4], units, G, dtype),
        classifier=Dense(keys[5], units, num_labels, dtype),
        proposal=learned if proposal == "learned" else None,
        num_glimpses=glimpses,
        slice_size=slice_size,
    )
