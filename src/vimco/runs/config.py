"""The configuration of a run: everything that determines what it computes, as one typed record."""

import dataclasses
import functools
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vimco.errors import UsageError
from vimco.estimators import ESTIMATORS
from vimco.models import MODELS
from vimco.models.family import Source
from vimco.registry import fits, in_words, text

DEFAULT_UPDATES = 100_000
MAX_INTEGER = MAX_UPDATES = 2**31 - 1  # updates are counted in 32 bits
MAX_SAMPLES, MAX_LAYERS = 2**20, 100  # sums and layers are unrolled
MAX_SEED = 2**32 - 1  # above it, two seeds could give the same key
BUDGET = ("updates", "epochs", "minutes")
ARCHITECTURE = ("layers", "proposal", "symmetric", "slice_size")  # options that a model family may take
CADENCE = ("log_every", "validate_every", "checkpoint_seconds", "tensorboard")


@dataclass(frozen=True)
class RunConfig:
    """What to train, on what, how, and for how long. The defaults are the paper's protocol (supplement B)."""

    task: str = "generative"
    """What to model: `generative`, whole images; `structured`, the bottom half of an image given its top half;
    `gaussian`, whole images by Gaussian latents; `attention`, labels by a few glimpses."""
    task_options: tuple[str, ...] = ()
    """Options of the task, each as name=value, where it has some."""
    proposal: Source = "learned"
    """The source of samples: a learned Q(h|x), or (structured and attention tasks) the model's prior."""
    layers: tuple[int, ...] = (200, 200, 200)
    """Widths of the latent layers, from the deepest to the one next to the observation."""
    symmetric: bool = False
    """Let layers see their binary parents as -1/+1 instead of 0/1."""
    estimator: str = "vimco"
    """The gradient estimator: `vimco estimators` lists them."""
    estimator_options: tuple[str, ...] = ()
    """Its options, each as name=value: `vimco estimators NAME` explains them."""
    num_samples: int = 5
    """K, the number of samples in the objective."""
    slice_size: int | None = None
    """Compute K in slices of this many samples, to bound memory."""

    data: str = "mnist"
    """A data set's name (see `vimco data list`), or a .npy or .npz file of your own."""
    binarize: int | None = None
    """Binarize the grey levels of your own file, drawing with this seed."""

    learning_rate: float = 1e-3
    """Adam's learning rate."""
    schedule: Literal["constant", "cosine", "stages"] = "constant"
    """The learning rate's course over `schedule_updates`: cosine goes to zero; stages falls to a tenth in eight steps,
    each three times as long as the one before."""
    schedule_updates: int | None = None
    """The horizon of a schedule; by default the run's budget in updates."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon."""
    warmup_updates: int = 0
    """Raise the learning rate linearly over this many updates at the start."""
    batch_size: int = 24
    """Examples in a mini-batch."""
    clip: float | None = None
    """Clip the norm of the gradient at this value."""
    weight_decay: float = 0.0
    """Shrink matrices of weights, but not biases, by this factor times the learning rate in each update (0.01, say):
    against over-fitting."""
    averaging: float | None = None
    """Also keep an exponential average of the parameters, with this decay (0.999, say)."""
    precision: Literal["float32", "float64"] = "float32"
    """Arithmetic of the whole run."""
    seed: int = 0
    """The random seed."""
    init_from: str | None = None
    """Start from the best weights of another run."""

    updates: int | None = None
    """Stop after this many updates (100,000 unless another budget is given)."""
    epochs: float | None = None
    """Stop after this many passes over the training set."""
    minutes: float | None = None
    """Stop after this many minutes of training."""

    log_every: int = 500
    """Updates between two lines of metrics."""
    validate_every: int = 2000
    """Updates between two validations with the training K; the best model is kept."""
    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints."""
    tensorboard: bool = False
    """Also write TensorBoard event files (needs the extra: pip install ".[tensorboard]" in the repository)."""

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            if not fits(getattr(self, name), hint):
                raise UsageError(f"The field {name!r} must be {in_words(hint)}; got {getattr(self, name)!r}.")
        for name, entry in (("task", MODELS[self.task]), ("estimator", ESTIMATORS[self.estimator])):
            options = entry.canonical(getattr(self, f"{name}_options"))
            object.__setattr__(self, f"{name}_options", options)
        positive = ("num_samples", "slice_size", "learning_rate", "schedule_updates", "batch_size", "clip", *BUDGET)
        for name in (*positive, "adam_epsilon", "log_every", "validate_every"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{option(name)} must be a positive, finite number; got {value}.")
        for name in ("slice_size", "batch_size", "updates", "warmup_updates", "schedule_updates", "layers"):
            value = getattr(self, name)
            if value is not None and (max(value, default=0) if isinstance(value, tuple) else value) > MAX_INTEGER:
                raise UsageError(f"{option(name)} must be at most {MAX_INTEGER:,}: numbers are counted in 32 bits.")
        if self.num_samples > MAX_SAMPLES or len(self.layers) > MAX_LAYERS:
            raise UsageError(
                f"A run has at most {MAX_SAMPLES:,} samples and {MAX_LAYERS} layers; got {self.num_samples} and "
                f"{len(self.layers)}. More could not be compiled; vimco evaluate takes more samples."
            )
        for name in ("warmup_updates", "weight_decay", "checkpoint_seconds"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise UsageError(f"{option(name)} must be zero or a positive, finite number; got {value}.")
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"--seed must be from 0 to {MAX_SEED}; got {self.seed}.")
        if not self.layers or min(self.layers) < 1:
            raise UsageError(f"--layers needs one or more positive widths, such as 200 200; got {self.layers}.")
        if self.averaging is not None and not 0 < self.averaging < 1:
            raise UsageError(f"--averaging is a decay between 0 and 1, such as 0.999; got {self.averaging}.")
        for name in ARCHITECTURE:
            value = getattr(self, name)
            if name not in MODELS[self.task].parameters and value != type(self).__dict__[name]:
                others = " or ".join(task for task, family in MODELS.items() if name in family.parameters)
                given = option(name) if value is True else f"{option(name)} {text(value)}"
                raise UsageError(
                    f"{given} goes with --task {others}, not with --task {self.task}: leave it out, or change the task."
                )
        if sum(getattr(self, name) is not None for name in BUDGET) > 1:
            raise UsageError("Give one budget: --updates, --epochs or --minutes.")
        if self.schedule == "constant" and self.schedule_updates is not None:
            raise UsageError(
                "--schedule-updates is the horizon of a schedule: add --schedule cosine or stages, or leave it out."
            )
        if self.schedule != "constant" and self.schedule_updates is None and (self.epochs or self.minutes):
            raise UsageError(
                f"The {self.schedule} schedule ends at an update: add --schedule-updates, or give --updates."
            )

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the parameters after n updates: all fields except budget and cadence.

        It includes the horizon of a schedule, which is resolved here.
        """
        record = dict(vars(self))
        if self.schedule != "constant":
            record["schedule_updates"] = self.horizon
        return {name: value for name, value in record.items() if name not in (*BUDGET, *CADENCE)}

    @property
    def model(self) -> str:
        """The task with its options and, where it has layers, their widths: structured 200-200."""
        layers = "-".join(map(str, self.layers)) if "layers" in MODELS[self.task].parameters else ""
        return " ".join(filter(None, (self.task, *self.task_options, layers)))

    @property
    def horizon(self) -> int:
        """The update at which a schedule ends."""
        return self.schedule_updates or self.updates or DEFAULT_UPDATES

    def total_updates(self, updates_per_epoch: int) -> int | None:
        """Return the budget in updates; None for a budget of time."""
        if self.minutes is not None:
            return None
        updates = self.updates or DEFAULT_UPDATES if self.epochs is None else self.epochs * updates_per_epoch
        if updates > MAX_UPDATES:
            raise UsageError(f"A run has at most {MAX_UPDATES:,} updates; {updates:.3g} were asked for.")
        return max(1, round(updates))

    def to_json(self) -> dict[str, Any]:
        """Return the record for JSON; empty lists of options are left out."""
        record = {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self).items()}
        return {name: value for name, value in record.items() if value != []}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "RunConfig":
        """Return the configuration in a JSON record; refuse unknown and ill-typed fields by name."""
        if unknown := sorted(set(record) - set(_hints())):
            raise UsageError(
                f"The configuration has no field {unknown[0]!r}: it is misspelt, or written by another version."
            )
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items()}
        if values.get("schedule", "constant") == "constant":
            values.pop("schedule_updates", None)  # which some older records have, without effect
        return cls(**values)


def option(name: str) -> str:
    """Return the name of a field as an option of the command line."""
    return "--" + name.replace("_", "-")


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Return options with their values as words of a command line."""
    words = []
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(option(name) if value else option(f"no_{name}"))
        else:
            words += [option(name), *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return words


@functools.cache
def _hints() -> dict[str, Any]:
    """Return the types of all fields."""
    return typing.get_type_hints(RunConfig)
