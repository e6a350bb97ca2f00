"""Recipes: sets of options with a name, measured here or published elsewhere. The paper's protocol is the default."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from vimco.errors import UsageError
from vimco.runs.config import RunConfig, words_of

C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True)
class Recipe:
    """A set of options and its description."""

    what: str
    options: dict[str, Any]  # fields of `RunConfig`
    has_warmup: bool = False  # of its estimator, whose option `updates` is the length of it
    goes_on: bool = False  # from the weights of another run

    @property
    def words(self) -> list[str]:
        """The options as words of the command line."""
        return words_of(self.options)

    def completed(self, config: C) -> C:
        """Return a configuration by this recipe with what depends on its budget: a warm-up takes half of the updates.

        The estimator's default stays where the budget is in other units. What was given beside the recipe stays too.
        """
        is_given = any(option.startswith("updates=") for option in config.estimator_options)
        is_other = config.estimator != self.options.get("estimator")
        if not self.has_warmup or not config.updates or is_given or is_other:
            return config
        half = f"updates={max(1, config.updates // 2)}"
        return replace(config, estimator_options=(half, *config.estimator_options))


_FALLING = {"learning_rate": 3e-3, "schedule": "cosine", "averaging": 0.999}
_WARM = {"estimator": "renyi-warmup", **_FALLING}

RECIPES: dict[str, Recipe] = {
    "falling": Recipe("three times the usual learning rate, falling to zero over the budget", _FALLING),
    "warm": Recipe(
        "falling, and an objective that goes from near the ELBO to the multi-sample bound over the first half of "
        "--updates, or over 25,000 updates if they are not given",
        _WARM,
        has_warmup=True,
    ),
    "warm-decay": Recipe(
        "warm, and decay of weights against over-fitting", {**_WARM, "weight_decay": 0.01}, has_warmup=True
    ),
    "cool-down": Recipe(
        "a short training from the weights of a long one, named by --init-from, perhaps with more samples: the usual "
        "rate, falling to zero over the budget, and decay of weights against over-fitting",
        {
            "learning_rate": 1e-3,
            "schedule": "cosine",
            "warmup_updates": 500,
            "weight_decay": 0.01,
            "averaging": 0.999,
        },
        goes_on=True,
    ),
    "raiko": Recipe(
        "falling, by backpropagation through binary units, biased but of low variance: for samples from the "
        "prior (Raiko et al., 2014)",
        {"estimator": "straight-through", **_FALLING},
    ),
    "burda": Recipe(
        "eight stages of falling rates, each three times as long as the one before (Burda et al., 2015)",
        {"learning_rate": 1e-3, "schedule": "stages", "adam_epsilon": 1e-4, "batch_size": 20},
    ),
}


def named_recipe(name: str) -> Recipe:
    """Return the recipe of this name."""
    if name not in RECIPES:
        raise UsageError(f"There is no recipe {name!r}; choose one of {', '.join(RECIPES)}.")
    return RECIPES[name]
