"""Images at random places of a larger canvas, among pieces of other images: made on the device when they are seen."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from vimco.models.kernels.randomness import fold_in


class Canvas(eqx.Module):
    """Puts an image at a place of `shape` that is uniform among those where all of it is seen.

    Beside it lie `pieces`: squares of `piece_size` pixels from random places of random other images. The scene is a
    function of the key, the row and the number of the draw, so a run that is resumed sees what it would have seen.
    """

    key: PRNGKeyArray
    shape: tuple[int, int] = eqx.field(static=True)
    image_shape: tuple[int, int] = eqx.field(static=True)
    pieces: int = eqx.field(static=True, default=0)
    piece_size: int = eqx.field(static=True, default=0)

    def __call__(self, images: UInt8[Array, "N _"], rows: Int[Array, "B"], draw: Int[Array, ""]) -> UInt8[Array, "B C"]:
        """Return the scenes of these rows."""
        return jax.vmap(partial(self._scene, images, fold_in(self.key, draw)))(rows)

    def _scene(self, images: UInt8[Array, "N _"], key: PRNGKeyArray, row: Int[Array, ""]) -> UInt8[Array, "C"]:
        key_of_place, *keys = jax.random.split(fold_in(key, row), 1 + self.pieces)
        scene = self._put(images[row].reshape(self.image_shape), key_of_place)
        for key_of_piece in keys:
            key_of_content, key_of_place = jax.random.split(key_of_piece)
            scene = scene | self._put(self._piece(images, row, key_of_content), key_of_place)
        return scene.reshape(-1)

    def _put(self, image: UInt8[Array, "h w"], key: PRNGKeyArray) -> UInt8[Array, "H W"]:
        """Return the canvas with the image at a random place: a window on the image in a wide frame of zeros."""
        free = jnp.array(self.shape) - jnp.array(image.shape)
        offset = jax.random.randint(key, (2,), 0, free + 1)
        margins = [(outer - inner, outer - inner) for outer, inner in zip(self.shape, image.shape, strict=True)]
        return jax.lax.dynamic_slice(jnp.pad(image, margins), free - offset, self.shape)

    def _piece(self, images: UInt8[Array, "N _"], row: Int[Array, ""], key: PRNGKeyArray) -> UInt8[Array, "p p"]:
        """Return a piece of another image than that of the row."""
        key_of_image, key_of_place = jax.random.split(key)
        other = (row + 1 + jax.random.randint(key_of_image, (), 0, images.shape[0] - 1)) % images.shape[0]
        start = jax.random.randint(key_of_place, (2,), 0, jnp.array(self.image_shape) - self.piece_size + 1)
        return jax.lax.dynamic_slice(images[other].reshape(self.image_shape), start, (self.piece_size,) * 2)
