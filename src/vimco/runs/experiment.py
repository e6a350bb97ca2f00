"""From a configuration to the objects that it names: data on the device, model, estimator, trainer."""

import enum
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from vimco.data import Dataset
from vimco.data.dataset import NUM_LABELS
from vimco.errors import UsageError
from vimco.estimators import Estimator, named_estimator
from vimco.models import MODELS
from vimco.models.scenes import Canvas
from vimco.runs.config import ARCHITECTURE, MAX_SEED, RunConfig
from vimco.samples import Examples, Keys, Model
from vimco.training.devices import replicated
from vimco.training.loop import Trainer, TrainingState
from vimco.training.optimizer import adam_with_schedule

Split = Literal["train", "validation", "test"]


class Purpose(enum.IntEnum):
    """A purpose of randomness. Each has its own key, made from the seed; numbers are never reused."""

    INITIALISATION = 0
    ORDER = 1
    LATENTS = 2
    DREAMS = 3
    VALIDATION = 4
    EVALUATION = 5
    PICTURES = 6
    AUXILIARY = 7
    SCENES = 8
    NOISE = 9


def key_for(purpose: Purpose, seed: int) -> PRNGKeyArray:
    """Return the key of a purpose: a function of the seed alone, so there is no generator state to save."""
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"The seed must be from 0 to {MAX_SEED}; got {seed}.")
    return jax.random.fold_in(jax.random.key(seed), int(purpose))


@dataclass(frozen=True)
class Experiment:
    """A configuration together with its data set, and the devices. Use it inside `precision(config)`."""

    config: RunConfig
    dataset: Dataset
    mesh: Mesh | None = None

    def __post_init__(self) -> None:
        if self.config.batch_size > len(self.dataset.train):
            raise UsageError(
                f"--batch-size {self.config.batch_size} is more than the {len(self.dataset.train)} training examples "
                f"of {self.dataset.name}: choose a smaller one."
            )
        task, data, has_labels = self.config.task, self.config.data, self.dataset.scenes is not None
        if MODELS[task].of_scenes and not has_labels:
            raise UsageError(
                f"--task {task} predicts labels, and --data {data} has none: use translated-mnist or cluttered-mnist."
            )
        if has_labels and not MODELS[task].of_scenes:
            tasks = " or ".join(name for name, family in MODELS.items() if family.of_scenes)
            raise UsageError(
                f"--data {data} has labels, and images at random places: it is for --task {tasks}, not for --task "
                f"{task}. Use --data mnist."
            )
        self.config.total_updates(len(self.dataset.train) // self.config.batch_size)  # refuses too many

    def examples(self, split: Split) -> Examples:
        """Return a split on all devices, as the task divides it into observation and context."""
        return replicated(self._divided(split), self.mesh)

    def _divided(self, split: Split) -> Examples:
        images, scenes = self.dataset.splits[split], self.dataset.scenes
        if scenes is None:
            divided = MODELS[self.config.task].divide(images, self.dataset.image_shape)
            context, observation = (jnp.asarray(np.ascontiguousarray(part)) for part in divided)
            return Examples(observation, context)
        number = list(self.dataset.splits).index(split)
        # Scenes of training depend on the run's seed; those of evaluation are the same for all runs.
        key = jax.random.fold_in(key_for(Purpose.SCENES, self.config.seed if split == "train" else 0), number)
        canvas = Canvas(key, self.dataset.image_shape, scenes.image_shape, scenes.pieces, scenes.piece_size)
        labels = np.eye(NUM_LABELS, dtype=np.uint8)[scenes.labels[number]]
        return Examples(jnp.asarray(labels), jnp.asarray(images), canvas)

    @property
    def trainer(self) -> Trainer:
        """The loop's settings."""
        seed = self.config.seed
        return Trainer(
            optimizer=optimizer(self.config),
            num_samples=self.config.num_samples,
            batch_size=self.config.batch_size,
            averaging=self.config.averaging,
            keys=Keys(*(key_for(each, seed) for each in (Purpose.LATENTS, Purpose.DREAMS, Purpose.AUXILIARY))),
            key_of_order=key_for(Purpose.ORDER, seed),
            mesh=self.mesh,
        )

    def model(self) -> Model:
        """Return the model before training."""
        return untrained_model(self.config, self.dataset.training_mean, self.dataset.image_shape)

    def estimator(self) -> Estimator:
        """Return the estimator before training. A baseline sees context and observation: together, the whole image."""
        key = jax.random.fold_in(key_for(Purpose.INITIALISATION, self.config.seed), 1)
        mean = jnp.asarray(self.dataset.training_mean, jnp.result_type(float))
        return named_estimator(self.config.estimator, key, mean, self.config.estimator_options)

    def initial_state(self, model: Model | None = None) -> TrainingState:
        """Return the state before the first update; `model` replaces the untrained one."""
        return self.trainer.initial_state(model or self.model(), self.estimator(), self._divided("train"))


def untrained_model(config: RunConfig, mean: np.ndarray, image_shape: tuple[int, int]) -> Any:
    """Return the model of a configuration with its initial parameters, for images of this mean and shape."""
    family, dtype = MODELS[config.task], jnp.result_type(float)
    context_mean, observation_mean = family.divide(mean, image_shape)
    facts = {
        "key": jax.random.fold_in(key_for(Purpose.INITIALISATION, config.seed), 0),
        "observation_mean": jnp.asarray(observation_mean, dtype),
        "context_mean": jnp.asarray(context_mean, dtype),
        "image_shape": image_shape,
        "num_labels": NUM_LABELS,
        **{name: getattr(config, name) for name in ARCHITECTURE},
    }
    taken = {name: facts[name] for name in family.parameters}
    # Compiled as a whole, which is faster than operation by operation.
    return eqx.filter_jit(family.build)(**taken, **family.arguments(config.task_options))


def optimizer(config: RunConfig) -> optax.GradientTransformation:
    """Return Adam with the configured learning rate, schedule, clipping and decay."""
    horizon = config.horizon if config.schedule != "constant" else 1  # one optimizer for every budget
    rate = (config.learning_rate, config.schedule, horizon, config.warmup_updates)
    return adam_with_schedule(*rate, config.clip, config.adam_epsilon, config.weight_decay)


def precision(config: RunConfig) -> AbstractContextManager:
    """Return the context manager that sets the precision of a run's arithmetic."""
    return jax.enable_x64(config.precision == "float64")
