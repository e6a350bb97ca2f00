"""Model families: what `--task` names."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vimco.registry import Entry, Registry


@dataclass(frozen=True)
class ModelFamily(Entry):
    """A kind of model, and how it sees a data set.

    `build` makes a model: any object with `importance_samples` (`vimco.samples.Model`). Its keyword-only parameters are
    the family's options; each of the others is one of these names, and is given what it says:

    ====================================  =======================================================
    key                                   of the initial parameters
    observation_mean, context_mean        of the training set, divided
    image_shape                           (height, width)
    layers, proposal, symmetric,          the options of `vimco train` of these names; those that
    slice_size                            a family does not take are refused
    ====================================  =======================================================

    `divide(images, image_shape)` cuts images of shape (..., D) into context and observation. `pictures(model, key,
    examples, columns, rows)` returns rows of images by their titles, each (columns, D): what `vimco sample` draws.
    """

    divide: Callable[[np.ndarray, tuple[int, int]], tuple[np.ndarray, np.ndarray]]
    pictures: Callable[..., dict[str, np.ndarray]] | None = None

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """What the builder takes beside its options."""
        parameters = inspect.signature(self.build).parameters.values()
        return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY)


MODELS = Registry("task", ModelFamily)


def whole(images: np.ndarray, image_shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return no context, and the whole images as observation."""
    del image_shape
    return images[..., :0], images
