"""Gradient estimators, one file each, all on one seam: `estimator(samples, batch) -> Estimate`."""

from collections.abc import Callable

from jaxtyping import Array, Float, PRNGKeyArray

from vimco.errors import UsageError
from vimco.estimators.annealed import Annealed
from vimco.estimators.baselines import BaselineNetwork, RunningMoments
from vimco.estimators.dreg import STL, DReG, RWSDReG
from vimco.estimators.estimator import Estimator
from vimco.estimators.learned_vimco import LearnedVIMCO
from vimco.estimators.naive import Naive
from vimco.estimators.nvil import NVIL
from vimco.estimators.ovis import OVIS, AsymptoticOVIS
from vimco.estimators.pathwise import Pathwise
from vimco.estimators.renyi import RenyiVIMCO, RenyiWarmup
from vimco.estimators.rloo import RLOO
from vimco.estimators.rws import RWS
from vimco.estimators.subsets import SubsetAverage, subsets
from vimco.estimators.tvo import TVO, MomentTVO
from vimco.estimators.vimco import VIMCO
from vimco.signals import arithmetic_mean_of_others, left_out

__all__ = [
    "ESTIMATORS",
    "NVIL",
    "OVIS",
    "RLOO",
    "RWS",
    "STL",
    "TVO",
    "VIMCO",
    "Annealed",
    "AsymptoticOVIS",
    "BaselineNetwork",
    "DReG",
    "Estimator",
    "LearnedVIMCO",
    "MomentTVO",
    "Naive",
    "Pathwise",
    "RWSDReG",
    "RenyiVIMCO",
    "RenyiWarmup",
    "RunningMoments",
    "SubsetAverage",
    "named_estimator",
    "subsets",
]

# Each entry makes an estimator from a key and the mean of the data (context and observation side by side).
ESTIMATORS: dict[str, Callable[[PRNGKeyArray, Float[Array, "D"]], Estimator]] = {
    "naive": lambda _key, _mean: Naive(),
    "nvil": lambda key, mean: NVIL(BaselineNetwork(key, mean)),
    "vimco": lambda _key, _mean: VIMCO(),
    "vimco-arithmetic": lambda _key, _mean: VIMCO(arithmetic_mean_of_others),
    "vimco-leave-one-out": lambda _key, _mean: VIMCO(left_out),
    "vimco-learned": lambda key, mean: LearnedVIMCO(BaselineNetwork(key, mean)),
    "rws": lambda _key, _mean: RWS(),
    "rws-sleep": lambda _key, _mean: RWS(wake=False, sleep=True),
    "rws-both": lambda _key, _mean: RWS(sleep=True),
}


def named_estimator(name: str, key: PRNGKeyArray, mean: Float[Array, "D"]) -> Estimator:
    """The estimator that the command line calls `name`."""
    if name not in ESTIMATORS:
        raise UsageError(f"There is no estimator {name!r}; choose one of {', '.join(ESTIMATORS)}.")
    return ESTIMATORS[name](key, mean)
