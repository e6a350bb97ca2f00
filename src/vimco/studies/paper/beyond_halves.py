"""Beyond the paper: the two-layer models of bottom halves trained by recipes, beside the paper's protocol."""

from collections.abc import Sequence
from dataclasses import replace

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import PAPER
from vimco.studies.document import Block, Entry, Table, Text
from vimco.studies.paper.beyond import evaluated, of_protocol
from vimco.studies.paper.protocol import PROPOSALS, recipe
from vimco.studies.paper.structured_nll import PUBLISHED, cell
from vimco.studies.results import number
from vimco.studies.study import Study, kind, register_study
from vimco.studies.tables import PARAMETERS

# The warm-up from the ELBO helps where there is a proposal to learn.
RECIPES = {"prior": "falling", "learned": "warm"}
REMARK = (
    "The recipes are vimco train --task structured --layers 200 200 --num-samples 20 --updates 200000 with --proposal "
    "prior --recipe falling, and with --recipe warm: the rate falls from 3e-3 to zero, by warm with an objective that "
    "goes from near the ELBO to the multi-sample bound over the first half."
)


def runs() -> list[RunConfig]:
    """Bottom halves, two layers, K = 20: by the recipe `falling` with the prior, by `warm` with a learned proposal."""
    return [
        replace(PAPER, **{**cell(proposal)._asdict(), **recipe(name, 200_000)}) for proposal, name in RECIPES.items()
    ]


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Proposals in rows; the protocol, the recipe and the paper in columns."""
    samples = study.evaluation_samples or 0
    body = []
    for config, (proposal, name) in zip(runs(), RECIPES.items(), strict=True):
        of_recipe = [run for run in found if kind(run.config) == kind(config)]
        body.append(
            (
                Entry(PROPOSALS[proposal]),
                *(of_protocol(number(found, cell(proposal), samples, weights)) for weights in PARAMETERS),
                Entry(name),
                *(evaluated(of_recipe, samples, weights) for weights in PARAMETERS),
                Entry(f"{PUBLISHED[proposal]:.1f}"),
            )
        )
    protocol = ("VIMCO, the protocol, raw", "averaged")
    headings = ("K = 20", *protocol, "recipe", "by the recipe, raw", "averaged", "the paper")
    caption = f"Negative log-likelihood of the test set in nats, {samples} samples an image"
    return [Table(caption, headings, tuple(body), frozenset({6})), Text(REMARK)]


register_study(
    Study(
        "beyond-halves",
        "Beyond the paper: structured prediction by recipes",
        "test negative log-likelihood, 100 samples",
        runs,
        show,
        evaluation_samples=100,
    )
)
