"""The update and its loop, the optimizer, evaluation, diagnostics: arrays in, arrays out, no files."""

from vimco.training.diagnostics import GradientStatistics, gradient_statistics
from vimco.training.evaluation import Evaluation, evaluate, paired_comparison
from vimco.training.loop import Trainer, TrainingState

__all__ = [
    "Evaluation",
    "GradientStatistics",
    "Trainer",
    "TrainingState",
    "evaluate",
    "gradient_statistics",
    "paired_comparison",
]
