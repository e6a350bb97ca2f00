"""Model families: the values of `--task`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from vimco.registry import Named, Registry

Source = Literal["learned", "prior"]  # of latents: a proposal that is learned, or the model's prior


@dataclass(frozen=True)
class ModelFamily(Named):
    """A kind of model, and how it divides a data set.

    `build` makes a model: any object with `importance_samples` (`vimco.samples.Model`). Its keyword-only parameters are
    the family's options; each of its other parameters has one of these names:

    ====================================  =======================================================
    key                                   of the initial parameters
    observation_mean, context_mean        of the training set, divided
    image_shape                           (height, width)
    num_labels                            of scenes
    layers, proposal, symmetric,          the options of `vimco train` of these names; those that
    slice_size                            a family does not take are refused
    ====================================  =======================================================

    `divide(images, image_shape)` cuts images of shape (..., D) into context and observation. `pictures(model, key,
    examples, columns, rows)` returns the rows of images that `vimco sample` draws, by their titles, each (columns, D).
    `page(model)` returns a few words on what the model does, for `vimco page`, whose script computes with the arrays of
    sigmoid belief networks; it refuses a model that the page cannot show. Without it the family has no page.
    `of_scenes` says that it predicts the labels of scenes (`vimco.data.Scenes`), and nothing else.
    """

    divide: Callable[[np.ndarray, tuple[int, int]], tuple[np.ndarray, np.ndarray]]
    pictures: Callable[..., dict[str, np.ndarray]] | None = None
    page: Callable[[Any], str] | None = None
    of_scenes: bool = False

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the builder that are not options."""
        parameters = inspect.signature(self.build).parameters.values()
        return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY)


MODELS = Registry("task", ModelFamily)


def whole(images: np.ndarray, image_shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return no context, and the whole images as observation."""
    del image_shape
    return images[..., :0], images
