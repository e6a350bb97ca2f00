"""Gradient estimators, one file each, with one interface: `estimator(samples, batch) -> Estimate`.

Every file of this folder is imported, and registers its names in `ESTIMATORS`.
"""

from collections.abc import Sequence

from jaxtyping import Array, Float, PRNGKeyArray

from vimco.estimators.annealed import Annealed
from vimco.estimators.baselines import BaselineNetwork
from vimco.estimators.baselines import RunningMoments as RunningMoments  # not among vimco's own names
from vimco.estimators.bbvi import BBVI
from vimco.estimators.dreg import STL, DReG, RWSDReG
from vimco.estimators.estimator import ESTIMATORS, Estimator
from vimco.estimators.learned_vimco import LayerwiseVIMCO, LearnedVIMCO
from vimco.estimators.local_expectations import LocalExpectations
from vimco.estimators.muprop import MuProp
from vimco.estimators.naive import Naive
from vimco.estimators.nvil import NVIL, LocalNVIL
from vimco.estimators.ovis import OVIS, AsymptoticOVIS
from vimco.estimators.pathwise import Pathwise
from vimco.estimators.ram import RAM
from vimco.estimators.renyi import RenyiVIMCO, RenyiWarmup
from vimco.estimators.rloo import RLOO
from vimco.estimators.rws import RWS
from vimco.estimators.straight_through import StraightThrough
from vimco.estimators.subsets import SubsetAverage
from vimco.estimators.subsets import subsets as subsets
from vimco.estimators.tang import ImportanceSampledEM
from vimco.estimators.tvo import TVO, MomentTVO
from vimco.estimators.vimco import VIMCO
from vimco.registry import import_modules

__all__ = [
    "BBVI",
    "NVIL",
    "OVIS",
    "RAM",
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
    "ImportanceSampledEM",
    "LayerwiseVIMCO",
    "LearnedVIMCO",
    "LocalExpectations",
    "LocalNVIL",
    "MomentTVO",
    "MuProp",
    "Naive",
    "Pathwise",
    "RWSDReG",
    "RenyiVIMCO",
    "RenyiWarmup",
    "StraightThrough",
    "SubsetAverage",
    "named_estimator",
]

import_modules(__name__)


def named_estimator(name: str, key: PRNGKeyArray, mean: Float[Array, "D"], options: Sequence[str] = ()) -> Estimator:
    """Return the estimator with this name on the command line, with options written `name=value`."""
    return ESTIMATORS[name].build(key, mean, **ESTIMATORS[name].arguments(options))
