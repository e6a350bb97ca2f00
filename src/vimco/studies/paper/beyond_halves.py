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
from vimco.studies.tables import PARAMETERS, on_other_data

# Proposal, recipe and updates. The warm-up from the ELBO helps where there is a proposal to learn.
RECIPES = (("prior", "falling", 200_000), ("prior", "raiko", 100_000), ("learned", "warm", 200_000))
REMARK = (
    "The recipes are vimco train --task structured --layers 200 200 --num-samples 20 with --proposal prior --recipe "
    "falling --updates 200000, with --proposal prior --recipe raiko --updates 100000, and with --recipe warm --updates "
    "200000: the rate falls from 3e-3 to zero, by raiko with the biased estimator of Raiko et al., by warm with an "
    "objective that goes from near the ELBO to the multi-sample bound over the first half."
)


def runs() -> list[RunConfig]:
    """Bottom halves, two layers, K = 20: `falling` and `raiko` with the prior, `warm` with a learned proposal."""
    return [
        replace(PAPER, **{**cell(proposal)._asdict(), **recipe(name, updates)}, updates=updates)
        for proposal, name, updates in RECIPES
    ]


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Proposals and recipes in rows; the protocol, the recipe and the paper in columns."""
    samples = study.evaluation_samples or 0
    body = []
    for config, (proposal, name, _) in zip(runs(), RECIPES, strict=True):
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
    return [Table(caption, headings, tuple(body), frozenset({6})), Text(REMARK), *on_other_data(found)]


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
