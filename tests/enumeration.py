"""Every set of K samples of a tiny model: expectations are exact sums, up to rounding errors.

A `Toy` has M configurations of its latents, so there are M^K sets of K samples, each of probability Π_k Q(h^k | x).
They are placed along the example axis, so that one call of an estimator computes them all.

An estimator knows only log P(x, h) and log Q(h | x) of a model. So a toy is two tables with an entry for each
configuration, and the Jacobians of the tables for the model's parameters; the chain rule gives the gradient.

Toys have M = 8 unless there is a reason, because JAX compiles each operation again for each shape.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from vimco import Batch, Estimator, ImportanceSamples, SigmoidBeliefNetwork, generative_sbn, structured_sbn
from vimco.parameters import partition
from vimco.samples import Auxiliary

SBN_KINDS = ("generative", "structured-prior", "structured-learned")


@dataclass(frozen=True, eq=False)
class Toy:
    """A model's log P(x, h) and log Q(h | x) for one example and all M configurations h, with their gradients."""

    model: Any
    example: Batch
    log_joint: np.ndarray  # (M,)
    log_proposal: np.ndarray  # (M,)
    gradient_of_log_joint: np.ndarray  # (M, number of parameters)
    gradient_of_log_proposal: np.ndarray  # the same
    unravel: Callable[[Any], Any]  # from a vector of all parameters to a tree of NumPy arrays like the model
    shared_parameters: bool = False

    @classmethod
    def of(cls, model: Any, example: Batch, samples: Callable[[Any], ImportanceSamples]) -> "Toy":
        """Return the toy of a model; `samples(model)` has all configurations along the example axis, with K = 1."""
        parameters, rest = partition(model)
        flat, unravel = ravel_pytree(parameters)

        def tables(flat):
            record = samples(eqx.combine(unravel(flat), rest))
            return record.log_joint[0], record.log_proposal[0]

        values, jacobians, numbers = jax.jit(
            lambda flat: (tables(flat), jax.jacrev(tables)(flat), unravel(jnp.arange(flat.size, dtype=flat.dtype)))
        )(flat)
        places = jax.tree.map(lambda leaf: np.asarray(leaf).astype(int), numbers)  # of all parameters in a vector

        def unraveled(vector):
            return jax.tree.map(np.asarray(vector).__getitem__, places)

        return cls(model, example, *map(np.asarray, (*values, *jacobians)), unraveled)

    def sets(self, K: int) -> np.ndarray:
        """Return the numbers (K, M^K) of the configurations in every set of K samples."""
        return np.indices(self.log_joint.shape * K).reshape(K, -1)

    def samples(self, K: int, num_auxiliary: int = 0) -> ImportanceSamples:
        """Return every set of K samples, along the example axis; with auxiliary ones, every set of both."""
        numbers = self.sets(K + num_auxiliary)
        log_weights = self.log_joint - self.log_proposal
        return ImportanceSamples(
            jnp.asarray(self.log_joint[numbers[:K]]),
            jnp.asarray(self.log_proposal[numbers[:K]]),
            auxiliary_log_weights=jnp.asarray(log_weights[numbers[K:]]) if num_auxiliary else None,
            proposal_is_prior=self.proposal_is_prior,
            shared_parameters=self.shared_parameters,
        )

    @property
    def proposal_is_prior(self) -> bool:
        """Whether the samples come from the model's own prior."""
        return getattr(self.model, "proposal", self) is None

    def probabilities(self, K: int) -> np.ndarray:
        """Return Π_k Q(h^k | x) of every set."""
        return np.exp(np.sum(self.log_proposal[self.sets(K)], axis=0))

    @property
    def log_likelihood(self) -> float:
        """log P(x)."""
        return float(np.logaddexp.reduce(self.log_joint))

    def expected_bound(self, K: int) -> float:
        """Return L^K (Eq. 4)."""
        return float(_expected_bound(self.sets(K), self.log_joint, self.log_proposal))

    def exact_gradient(self, K: int, order: float = 0.0) -> np.ndarray:
        """Return ∇L^K, the derivative of the sum over all sets: a vector of all parameters. Order 1 is the ELBO."""
        tables = (jnp.asarray(self.log_joint), jnp.asarray(self.log_proposal))
        of_joint, of_proposal = map(np.asarray, _gradient_of_expected_bound(self.sets(K), *tables, order))
        return of_joint @ self.gradient_of_log_joint + of_proposal @ self.gradient_of_log_proposal

    def gradients(self, estimator: Estimator, K: int) -> np.ndarray:
        """Return the estimate of ∇L^K that each set of samples gives: (M^K, number of parameters).

        With S auxiliary samples there are M^(K+S) sets.
        """
        S = num_auxiliary(estimator)
        looks_at_data = any(leaf.ndim == 2 for leaf in jax.tree.leaves(eqx.filter(estimator, eqx.is_array)))
        batch = copies(self.example, len(self.log_joint) ** (K + S)) if looks_at_data else None
        record = gradient_of_surrogates(self.samples(K, S), estimator, batch)
        numbers = self.sets(K + S)[:K]
        return np.einsum("ks,ksp->sp", record.log_joint, self.gradient_of_log_joint[numbers]) + np.einsum(
            "ks,ksp->sp", record.log_proposal, self.gradient_of_log_proposal[numbers]
        )

    def expected_gradient(self, estimator: Estimator, K: int) -> np.ndarray:
        """Return the mean of the estimate over every set of K samples."""
        return self.probabilities(K + num_auxiliary(estimator)) @ self.gradients(estimator, K)

    def variance(self, estimator: Estimator, K: int, parameters: slice = slice(None)) -> float:
        """Return the exact variance of the estimate, summed over all parameters, or over some."""
        probability = self.probabilities(K + num_auxiliary(estimator))
        gradients = self.gradients(estimator, K)[:, parameters]
        return float(probability @ np.sum((gradients - probability @ gradients) ** 2, axis=1))

    def of_proposal(self, vector: np.ndarray) -> np.ndarray:
        """Return the part of a gradient that belongs to the proposal of an SBN."""
        return raveled(self.unravel(vector).proposal)

    def of_prior(self, vector: np.ndarray) -> np.ndarray:
        """Return the part of a gradient that belongs to P(h | c)."""
        return raveled(self.unravel(vector).prior)

    def of_likelihood(self, vector: np.ndarray) -> np.ndarray:
        """Return the part of a gradient that belongs to P(x | h)."""
        return raveled(self.unravel(vector).likelihood)

    def blocks(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parts of a gradient that an estimator may scale separately."""
        parts = {"prior": self.of_prior(vector), "likelihood": self.of_likelihood(vector)}
        return parts if self.proposal_is_prior else parts | {"proposal": self.of_proposal(vector)}

    def of_model(self, vector: np.ndarray) -> np.ndarray:
        """Return the part of a gradient that belongs to P(x, h | c)."""
        tree = self.unravel(vector)
        return raveled((tree.prior, tree.likelihood))


def raveled(tree: Any) -> np.ndarray:
    """Return all arrays of a tree as a vector, as `ravel_pytree`, but without compiling anything."""
    return np.concatenate([np.zeros(0), *map(np.ravel, jax.tree.leaves(tree))])


def num_auxiliary(estimator: Estimator) -> int:
    """Return S, the number of auxiliary samples that an estimator needs."""
    return sum(need.number for need in estimator.needs if isinstance(need, Auxiliary))


def gradients_through_model(toy: Toy, estimators: Sequence[Estimator], K: int, samples: Callable) -> np.ndarray:
    """Return the gradient through the model for each estimator and set of K samples: (estimators, M^K, parameters).

    For estimators that need more of a model than two tables: `samples(model, latents, batch)` makes their record, from
    latents with the deepest layer first. Everything is compiled at once.
    """
    parameters, rest = partition(toy.model)
    flat, unravel = ravel_pytree(parameters)
    widths = tuple(layer.bias.shape[0] for layer in toy.model.prior.layers)
    latents = tuple(jnp.asarray(h[0][toy.sets(K)]) for h in binary_configurations(widths))
    batch = copies(toy.example, len(toy.log_joint) ** K)

    def surrogates(flat):
        record = samples(eqx.combine(unravel(flat), rest), latents, batch)
        return jnp.stack([estimator(record, batch).surrogate for estimator in estimators])

    return np.asarray(jax.jit(jax.jacrev(surrogates))(flat))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@eqx.filter_jit
@eqx.filter_grad
def gradient_of_surrogates(samples: ImportanceSamples, estimator: Estimator, batch: Batch | None):
    """Return the factor of each log-probability in the gradient. Compiled once for each estimator and shape."""
    return jnp.sum(estimator(samples, batch).surrogate)


@functools.partial(jax.jit, static_argnums=3)
def _expected_bound(sets, log_joint, log_proposal, order=0.0):
    """Return E[L̂; the weights are not all zero]: where all are zero, L̂ is −inf and has no expectation."""
    log_weights = log_joint[sets] - log_proposal[sets]
    is_possible = jnp.any(log_weights > -jnp.inf, axis=0)
    if order == 1:
        bound = jnp.mean(log_weights, axis=0)
    else:
        powers = (1 - order) * jnp.where(is_possible, log_weights, 0.0)
        bound = (jax.nn.logsumexp(powers, axis=0) - jnp.log(sets.shape[0])) / (1 - order)
    return jnp.sum(jnp.exp(jnp.sum(log_proposal[sets], axis=0)) * jnp.where(is_possible, bound, 0.0))


_gradient_of_expected_bound = jax.jit(jax.grad(_expected_bound, (1, 2)), static_argnums=3)


class Table(eqx.Module):
    """The smallest model: one latent with M values, whose log P and log Q are the parameters."""

    log_joint: jax.Array
    proposal_logits: jax.Array


PROPOSAL_OF_TABLE = slice(8, 16)  # the parameters of a table toy's proposal


def table_toy(log_joint, proposal_logits) -> Toy:
    """Return a toy from numbers, to be called in double precision. Entries −inf of `log_joint` are impossible."""
    log_joint, proposal_logits = jnp.array(log_joint), jnp.array(proposal_logits)
    is_possible = log_joint > -jnp.inf
    return Toy.of(
        Table(jnp.where(is_possible, log_joint, 0.0), proposal_logits),
        Batch(jnp.array([[1.0, 0.0]])),
        lambda m: ImportanceSamples(
            jnp.where(is_possible, m.log_joint, -jnp.inf)[None], jax.nn.log_softmax(m.proposal_logits)[None]
        ),
    )


def binary_configurations(sizes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return all 2^n values of a tuple of binary vectors: one array (1, 2^n, n_l) per layer."""
    bits = np.indices((2,) * sum(sizes)).reshape(sum(sizes), -1).T.astype(float)
    return tuple(np.split(bits[None], np.cumsum(sizes)[:-1], axis=-1))


@functools.cache
def sbn_toy(kind: str, layers: tuple[int, ...] = (2, 1)) -> Toy:
    """Return a sigmoid belief network of a kind of `SBN_KINDS`, in double precision, with parameters far from zero."""
    with jax.enable_x64(True):
        example = example_of(kind)
        return Toy.of(sbn_model(kind, layers), example, lambda m: all_configurations(m, layers, example))


def example_of(kind: str) -> Batch:
    """Return the one example that toys know, as x or as (x, c)."""
    return Batch(jnp.array([[1.0, 0.0, 1.0]]), None if kind == "generative" else jnp.array([[0.0, 1.0]]))


@eqx.filter_jit
def sbn_model(kind: str, layers: tuple[int, ...] = (2, 1), symmetric: bool = False) -> SigmoidBeliefNetwork:
    """Return the model of a toy: three observed units, a context of two, parameters far from zero."""
    key, key_of_noise = jax.random.split(jax.random.key(0))
    means = jnp.array([0.3, 0.6, 0.5]), jnp.array([0.4, 0.7])
    if kind == "generative":
        model = generative_sbn(key, layers, means[0], symmetric=symmetric)
    else:
        proposal = kind.removeprefix("structured-")
        model = structured_sbn(key, layers, *means, proposal=proposal, symmetric=symmetric)
    parameters, rest = partition(model)
    flat, unravel = ravel_pytree(parameters)
    return eqx.combine(unravel(flat + jax.random.normal(key_of_noise, flat.shape)), rest)


@eqx.filter_jit
def all_configurations(model: SigmoidBeliefNetwork, layers: tuple[int, ...], example: Batch) -> ImportanceSamples:
    """Return the samples of all 2^n latents, along the example axis, K = 1."""
    latents = tuple(jnp.asarray(values) for values in binary_configurations(layers))
    return model.weighted(latents, copies(example, latents[0].shape[1]))


def copies(example: Batch, number: int) -> Batch:
    """Return a batch of `number` times the same example."""
    return jax.tree.map(lambda array: jnp.asarray(np.repeat(array, number, axis=0)), example)
