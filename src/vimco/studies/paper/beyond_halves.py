"""Beyond the paper: models of bottom halves trained by recipes, beside the paper's protocol and a later result."""

from collections.abc import Sequence
from dataclasses import replace

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import PAPER, Cell
from vimco.studies.document import Block, Entry, Table, Text
from vimco.studies.paper.beyond import evaluated, of_protocol
from vimco.studies.paper.protocol import PROPOSALS, recipe, structured
from vimco.studies.paper.structured_nll import PUBLISHED
from vimco.studies.results import number
from vimco.studies.study import Study, kind, register_study
from vimco.studies.tables import PARAMETERS, on_other_data

LAYERS = (200, 200)  # the paper's model of Sec. 5.2
LARGER = (240, 240, 240)  # Maddison et al. (2017): VIMCO with 50 samples from the prior, ten million updates
LATER = {LARGER: 50.2}
# Proposal, layers, recipe and updates. The warm-up from the ELBO helps where there is a proposal to learn.
RECIPES = (
    ("prior", LAYERS, "falling", 200_000),
    ("prior", LAYERS, "raiko", 100_000),
    ("prior", LARGER, "raiko", 100_000),
    ("learned", LAYERS, "warm", 200_000),
)
REMARK = (
    "The recipes are vimco train --task structured --layers 200 200 --num-samples 20 with --proposal prior --recipe "
    "falling --updates 200000, with --proposal prior --recipe raiko --updates 100000, and with --recipe warm --updates "
    "200000: the rate falls from 3e-3 to zero, by raiko with the biased estimator of Raiko et al., by warm with an "
    "objective that goes from near the ELBO to the multi-sample bound over the first half. Later results: VIMCO with "
    "50 samples from the prior after ten million updates, by Maddison et al. (the Concrete distribution)."
)


def runs() -> list[RunConfig]:
    """Bottom halves, K = 20: `falling` and `raiko` with the prior (larger, too), `warm` with a learned proposal."""
    return [
        replace(PAPER, **{**cell(proposal, layers)._asdict(), **recipe(name, updates)}, updates=updates)
        for proposal, layers, name, updates in RECIPES
    ]


def cell(proposal: str, layers: tuple[int, ...]) -> Cell:
    """Return VIMCO by the protocol with K = 20."""
    return structured(proposal, "vimco", 20, layers=layers)[0]


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Proposals, layers and recipes in rows; the protocol, the recipe, the paper and later results in columns."""
    samples = study.evaluation_samples or 0
    body = []
    for config, (proposal, layers, name, _) in zip(runs(), RECIPES, strict=True):
        of_recipe = [run for run in found if kind(run.config) == kind(config)]
        body.append(
            (
                Entry(f"{'-'.join(map(str, layers))}, {PROPOSALS[proposal]}"),
                *(of_protocol(number(found, cell(proposal, layers), samples, weights)) for weights in PARAMETERS),
                Entry(name),
                *(evaluated(of_recipe, samples, weights) for weights in PARAMETERS),
                Entry(f"{PUBLISHED[proposal]:.1f}" if layers == LAYERS else "–"),
                Entry(f"{LATER[layers]:.1f}" if layers in LATER else "–"),
            )
        )
    protocol = ("VIMCO, the protocol, raw", "averaged")
    headings = ("K = 20", *protocol, "recipe", "by the recipe, raw", "averaged", "the paper", "later")
    caption = f"Negative log-likelihood of the test set in nats, {samples} samples an image"
    return [Table(caption, headings, tuple(body), frozenset({6, 7})), Text(REMARK), *on_other_data(found)]


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
