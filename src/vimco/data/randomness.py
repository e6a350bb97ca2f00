"""Random numbers for data that must be the same on every machine, with every version of numpy.

Numpy guarantees the raw 64-bit output of a bit generator for ever, but not that of `Generator.random`, `permutation`
and the like. So these functions use raw output and exact arithmetic only.
"""

import numpy as np


def uniforms(bits: np.random.PCG64, *shape: int) -> np.ndarray:
    """Return numbers in [0, 1), multiples of 2^-53: one raw draw each, in row order."""
    raw = bits.random_raw(shape)
    return (raw >> np.uint64(11)) * 2.0**-53


def bernoulli(bits: np.random.PCG64, levels: np.ndarray, white: int) -> np.ndarray:
    """Return bytes that are 1 with probability level / white, (N, D) -> (N, D) uint8. Levels 0 and white are certain.

    It draws blocks of rows, so that a large set does not need eight bytes a pixel at once.
    """
    draws = np.empty(levels.shape, np.uint8)
    block = 1000
    for start in range(0, len(draws), block):
        rows = levels[start : start + block]
        draws[start : start + block] = uniforms(bits, *rows.shape) < rows / np.float64(white)
    return draws


def shuffled_indices(bits: np.random.PCG64, number: int) -> np.ndarray:
    """Return a random permutation of 0, ..., number - 1: the order of `number` raw draws."""
    return np.argsort(bits.random_raw(number), kind="stable")
