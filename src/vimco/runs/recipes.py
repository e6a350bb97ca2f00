"""Recipes: sets of options with a name, measured here or published elsewhere. The paper's protocol is the default."""

from dataclasses import dataclass
from typing import Any

from vimco.errors import UsageError
from vimco.runs.config import words_of


@dataclass(frozen=True)
class Recipe:
    """A set of options and its description."""

    what: str
    options: dict[str, Any]  # fields of `RunConfig`

    @property
    def words(self) -> list[str]:
        """The options as words of the command line."""
        return words_of(self.options)


RECIPES: dict[str, Recipe] = {
    "falling": Recipe(
        "three times the usual learning rate, falling to zero over the budget",
        {"learning_rate": 3e-3, "schedule": "cosine", "averaging": 0.999},
    ),
    "warm": Recipe(
        "falling, and an objective that goes from near the ELBO to the multi-sample bound over 25,000 updates",
        {"estimator": "renyi-warmup", "learning_rate": 3e-3, "schedule": "cosine", "averaging": 0.999},
    ),
    "cool-down": Recipe(
        "a short training from the weights of a long one, named by --init-from, perhaps with more samples: the usual "
        "rate, falling to zero over the budget",
        {"learning_rate": 1e-3, "schedule": "cosine", "warmup_updates": 500, "averaging": 0.999},
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
