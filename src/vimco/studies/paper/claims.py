"""What the paper says about its results, one claim at a time: seen here, not seen, or not yet to be told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from vimco.studies.document import Entry, Section, Table, Text
from vimco.studies.paper.curves import Points, signal_points, validation_points
from vimco.studies.paper.runs import SAMPLES_OF_GENERATIVE, SAMPLES_OF_STRUCTURED
from vimco.studies.paper.tables import generative, minus, short_count
from vimco.studies.results import Result, chosen, numbers_of_equal_length
from vimco.studies.study import Cell

SIZES = (2, 5, 10, 50)


@dataclass(frozen=True)
class Verdict:
    """What our runs say about a claim, and the numbers behind it."""

    verdict: Literal["seen", "not seen", "not yet"]
    evidence: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, where it stands, and how to hold results against it."""

    statement: str
    place: str
    check: Callable[[Sequence[Result]], Verdict]


def claims_section(results: Sequence[Result]) -> Section:
    """Every claim with its verdict."""
    rows = []
    for claim in CLAIMS:
        verdict = claim.check(results)
        rows.append(
            (
                Entry(claim.statement, claim.place),
                Entry(verdict.verdict, is_missing=verdict.verdict == "not yet"),
                Entry(verdict.evidence),
            )
        )
    return Section(
        "claims",
        "The paper's claims, one by one",
        (
            Table(
                "What the paper says, and what was seen here",
                ("claim", "here", "by these numbers"),
                tuple(rows),
                prose=frozenset({0, 2}),
            ),
            Text(
                "Bounds are those of the validation set with the training K, the best up to the last update that all "
                "compared runs have reached. Likelihoods are compared after equally many updates only. One seed can "
                "mislead: small differences are no more than that."
            ),
        ),
    )


def _from_likelihoods(
    cells: Sequence[Cell], holds: Callable[[list[float]], bool], num_samples: int = SAMPLES_OF_GENERATIVE
) -> Callable[[Sequence[Result]], Verdict]:
    """A claim about negative log-likelihoods, in the order of the cells."""

    def check(results: Sequence[Result]) -> Verdict:
        numbers = numbers_of_equal_length(results, cells, num_samples)
        text = ", ".join(
            f"{_title(cell)}: {minus(n.value)} ({short_count(n.updates)} updates)" if n else f"{_title(cell)}: none"
            for cell, n in zip(cells, numbers, strict=True)
        )
        known = [n for n in numbers if n is not None]
        if len(known) < len(cells) or len({n.updates for n in known}) > 1:
            return Verdict("not yet", text)
        return Verdict("seen" if holds([n.value for n in known]) else "not seen", text)

    return check


def _from_curves(
    cells: Sequence[Cell],
    holds: Callable[[list[float]], bool],
    points_of: Callable[[Result], Points] = validation_points,
    value_of: Callable[[Points], float] = lambda points: max(value for _, value in points),
    share: float = 1.0,
) -> Callable[[Sequence[Result]], Verdict]:
    """A claim about curves, in the order of the cells, up to a share of the updates that all of them have reached."""

    def check(results: Sequence[Result]) -> Verdict:
        curves = [[points for r in chosen(results, cell) if (points := points_of(r))] for cell in cells]
        missing = [_title(cell) for cell, found in zip(cells, curves, strict=True) if not found]
        if missing:
            return Verdict("not yet", f"none yet: {', '.join(missing)}")
        end = share * min(points[-1][0] for found in curves for points in found)
        cut = [[[point for point in points if point[0] <= end] for points in found] for found in curves]
        if not all(points for found in cut for points in found):
            return Verdict("not yet", "the runs are too short")
        values = [fmean(value_of(points) for points in found) for found in cut]
        text = ", ".join(f"{_title(cell)}: {minus(value)}" for cell, value in zip(cells, values, strict=True))
        return Verdict("seen" if holds(values) else "not seen", f"{text} (up to update {end:,.0f})")

    return check


def _title(cell: Cell) -> str:
    name = cell.estimator.upper() if cell.estimator in ("vimco", "nvil", "rws") else cell.estimator
    return f"{name} ({cell.num_samples})" + (f" {cell.proposal}" if cell.task == "structured" else "")


def _of(estimator: str, sizes: Sequence[int]) -> list[Cell]:
    return [generative(estimator, K) for K in sizes]


def _three_layers(proposal: str, estimator: str, sizes: Sequence[int]) -> list[Cell]:
    return [Cell("structured", proposal, (200, 200, 200), estimator, K) for K in sizes]


def _all_structured(proposal: str) -> list[Cell]:
    nvil = _three_layers(proposal, "nvil", (1, 2, 5, 20, 50))
    return [*nvil, *_three_layers(proposal, "vimco", (2, 5, 20, 50))]


def _falls(values: Sequence[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(values))


def _second_half(points: Points) -> float:
    return fmean(value for update, value in points if update >= points[-1][0] / 2)


CLAIMS = (
    Claim("VIMCO improves from K = 2 to 5 to 10", "Table 1", _from_likelihoods(_of("vimco", (2, 5, 10)), _falls)),
    Claim("VIMCO improves from K = 10 to 50", "Table 1", _from_likelihoods(_of("vimco", (10, 50)), _falls)),
    Claim(
        "NVIL is markedly worse at K = 50 than at K = 10",
        "Table 1",
        _from_likelihoods(_of("nvil", (10, 50)), lambda v: v[1] > v[0] + 1),
    ),
    Claim(
        "NVIL's bound improves a little with K, and degrades from K = 10",
        "Figure 1",
        _from_curves(_of("nvil", (1, 2, 5, 10, 50)), lambda v: max(v[1], v[2]) > max(v[0], v[3]) and v[4] < v[3]),
    ),
    Claim(
        "VIMCO optimizes the multi-sample bound better than NVIL, by more the larger K",
        "Figure 1",
        _from_curves(
            [*_of("vimco", (5, 10, 50)), *_of("nvil", (5, 10, 50))],
            lambda v: 0 < v[0] - v[3] < v[1] - v[4] < v[2] - v[5],
        ),
    ),
    Claim(
        "VIMCO and RWS optimize the bound alike (here: within a nat, K = 2, 5, 10)",
        "Figure 1",
        _from_curves(
            [*_of("vimco", (2, 5, 10)), *_of("rws", (2, 5, 10))],
            lambda v: all(abs(b - a) < 1 for a, b in zip(v[:3], v[3:], strict=True)),
        ),
    ),
    Claim(
        "VIMCO and RWS have like likelihoods (here: within 1.5 nats), VIMCO with a slight edge at every K",
        "Table 1",
        _from_likelihoods(
            [*_of("vimco", SIZES), *_of("rws", SIZES)],
            lambda v: all(0 < b - a < 1.5 for a, b in zip(v[:4], v[4:], strict=True)),
        ),
    ),
    Claim(
        "RWS learns slightly faster at larger K (here: ahead after a quarter of the updates)",
        "Figure 1",
        _from_curves(
            [*_of("rws", (10, 50)), *_of("vimco", (10, 50))], lambda v: v[0] > v[2] and v[1] > v[3], share=0.25
        ),
    ),
    Claim(
        "With the prior as proposal, NVIL at K = 1 and 2 is ahead of VIMCO at 2",
        "Figure 2, left",
        _from_curves(
            [*_three_layers("prior", "nvil", (1, 2)), *_three_layers("prior", "vimco", (2,))],
            lambda v: min(v[:2]) > v[2],
        ),
    ),
    Claim(
        "With the prior as proposal, VIMCO is ahead of NVIL at K = 20 and 50",
        "Figure 2, left",
        _from_curves(
            [*_three_layers("prior", "vimco", (20, 50)), *_three_layers("prior", "nvil", (20, 50))],
            lambda v: v[0] > v[2] and v[1] > v[3],
        ),
    ),
    Claim(
        "The worst result with a learned proposal is better than the best with the prior",
        "Figure 2",
        _from_curves([*_all_structured("learned"), *_all_structured("prior")], lambda v: min(v[:9]) > max(v[9:])),
    ),
    Claim(
        "A learned proposal takes the two-layer model below 50 nats, the prior does not",
        "Sec. 5.2",
        _from_likelihoods(
            [Cell("structured", proposal, (200, 200), "vimco", 20) for proposal in ("learned", "prior")],
            lambda v: v[0] < 50 <= v[1],
            SAMPLES_OF_STRUCTURED,
        ),
    ),
    Claim(
        "The geometric mean is slightly better than the arithmetic",
        "Sec. 2.5.3",
        _from_curves(
            [*_of("vimco", (5, 10)), *_of("vimco-arithmetic", (5, 10))], lambda v: v[0] > v[2] and v[1] > v[3]
        ),
    ),
    Claim(
        "At K = 2 the learning signals of VIMCO and NVIL are alike (here: within a factor 1.5)",
        "Figure 3",
        _from_curves(
            [generative("vimco", 2), generative("nvil", 2)],
            lambda v: 1 / 1.5 < v[1] / v[0] < 1.5,
            signal_points,
            _second_half,
        ),
    ),
    Claim(
        "At K = 10 VIMCO's learning signal is about 3 times smaller (here: 2 to 4.5 times)",
        "Figure 3",
        _from_curves(
            [generative("vimco", 10), generative("nvil", 10)],
            lambda v: 2 < v[1] / v[0] < 4.5,
            signal_points,
            _second_half,
        ),
    ),
)
