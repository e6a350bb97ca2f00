"""Studies: their runs, the names of runs, and every study at toy size from end to end."""

import dataclasses
import hashlib
import json
import math
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded import recorded_run

from vimco import cli
from vimco.cli.study import StudyDisplay
from vimco.cli.terminal import err
from vimco.errors import UsageError
from vimco.report import write_report
from vimco.runs import checkpoints, directory
from vimco.runs.config import RunConfig
from vimco.runs.curve import Curve
from vimco.studies import STUDIES, Cell
from vimco.studies.cells import variations
from vimco.studies.claims import by_curves, by_likelihoods, falls
from vimco.studies.curves import plot
from vimco.studies.document import short_count
from vimco.studies.results import chosen, collected, number
from vimco.studies.runner import durations, local, tasks
from vimco.studies.runner.engine import Ending
from vimco.studies.runner.execution import Watch, execute, run_study
from vimco.studies.runner.local import LocalWorkers, command
from vimco.studies.runner.tasks import evaluations_due, planned
from vimco.studies.study import digest, label, run_name
from vimco.studies.tables import last_doubling, likelihoods_of_seeds, spread_over_seeds

PROGRAM = [sys.executable, "-c", "from vimco.cli import main; main()"]


# Which runs.


@pytest.mark.parametrize(
    ("name", "cells", "num_runs"),
    [
        ("table-1", 13, 39),
        ("figure-1", 13, 39),
        ("figure-2", 18, 54),
        ("structured-nll", 3, 9),
        ("figure-3", 6, 18),
        ("figure-4", 1, 3),
        ("means", 8, 24),
        ("related", 36, 108),
        ("estimators", 51, 153),
        ("iwae", 12, 36),
        ("samples", 13, 39),
        ("attention", 5, 15),
    ],
)
def test_a_study_has_three_rates_for_each_cell(name, cells, num_runs):
    assert len(STUDIES[name].cells) == cells
    assert len(STUDIES[name].runs()) == len(set(STUDIES[name].runs())) == num_runs


def test_runs_keep_to_the_papers_protocol():
    for study in STUDIES.values():
        if study.name in ("recipes", "beyond", "beyond-halves"):
            continue  # they have runs that depart from the protocol
        for run in study.runs():
            assert (run.data, run.batch_size, run.schedule, run.averaging) == ("binarized-mnist", 24, "constant", None)
            is_structured_nvil = run.task == "structured" and run.estimator == "nvil"
            assert run.learning_rate in ({1e-4, 3e-4, 1e-3} if is_structured_nvil else {3e-4, 1e-3, 3e-3})
            two = study.name == "structured-nll" or (study.name == "estimators" and run.task == "structured")
            two = two or (study.name == "related" and len(run.layers) == 2)
            layers = ((50,), (50, 100)) if study.name == "iwae" else ((200, 200) if two else (200, 200, 200),)
            assert run.layers in layers
            assert variations(run) == {}
    assert {run.num_samples for run in STUDIES["table-1"].runs()} == {1, 2, 5, 10, 50}
    assert {run.num_samples for run in STUDIES["figure-2"].runs()} == {1, 2, 5, 20, 50}


def test_studies_share_runs():
    def named(name):
        return set(map(run_name, STUDIES[name].runs()))

    assert named("figure-1") == named("table-1")
    assert named("figure-3") < named("table-1")
    assert named("figure-4") < named("figure-2")
    assert named("related") & named("structured-nll")  # VIMCO with the prior
    assert len(named("means") & named("table-1")) == 6  # VIMCO at K = 5 and 10


def test_adjusted_runs():
    study = STUDIES["structured-nll"]
    runs = study.adjusted(updates=70, rates=[0.1, 0.2], seeds=[4, 5], averaging=0.9, only=["prior-*-vimco", "rws"])
    assert len(runs) == 2 * 2 * 2
    assert {run.learning_rate for run in runs} == {0.1, 0.2}
    assert {run.seed for run in runs} == {4, 5}
    assert {(run.proposal, run.estimator) for run in runs} == {("prior", "vimco"), ("learned", "rws")}
    assert {run.updates for run in runs} == {70}
    with pytest.raises(UsageError, match="structured-prior-200-200-vimco-K20"):
        study.adjusted(updates=70, only=["K2"])  # a part is a whole part: not K20


def test_a_study_has_a_length_of_its_own_or_the_usual_one():
    lengths = {name: {run.updates for run in STUDIES[name].adjusted()} for name in ("table-1", "beyond", "recipes")}
    assert lengths == {"table-1": {100_000}, "beyond": {200_000}, "recipes": {50_000, 12_500}}
    halves = STUDIES["beyond-halves"].adjusted()
    assert {run.estimator: run.updates for run in halves} == {
        "vimco": 200_000,
        "straight-through": 100_000,
        "renyi-warmup": 200_000,
    }
    assert {run.updates for run in STUDIES["beyond"].adjusted(updates=70)} == {70}


def test_the_runs_of_a_study_have_different_names(tmp_path):
    for study in STUDIES.values():
        names = [training.name for training in planned(study.adjusted(), tmp_path)]
        assert len(set(names)) == len(names), study.name
    names = [training.name for training in planned(STUDIES["beyond"].adjusted(), tmp_path)]
    assert names[4].endswith("-K2-lr0.003-seed0 (schedule cosine, weight decay 0.01)")


def test_the_plan_states_every_length(capfd):
    cli.main(["study", "beyond-halves", "--dry-run"])
    assert "4 runs of 200,000 or 100,000 updates" in capfd.readouterr().out


def test_the_bars_show_a_stage_of_a_training(tmp_path, monkeypatch):
    """A study that measures gradients trains its runs in stages, with the same directory and fewer updates."""
    monkeypatch.setattr(err, "_force_terminal", True)
    config = dataclasses.replace(STUDIES["estimators"].adjusted(updates=1000, rates=[1e-3])[0], data="synthetic")
    (training,) = planned([config], tmp_path)
    stage = training.up_to(0.2)
    recorded_run(tmp_path / "runs", stage.config, name=training.path.name, is_finished=False)
    display = StudyDisplay([training], LocalWorkers(1))
    display.started(stage)
    display.waited([stage])
    (bar,) = (bar for bar in display.bars.tasks if bar.id == display.tasks[stage.name])
    assert bar.fields["text"].startswith("200 of 200, about ")


@pytest.mark.parametrize("is_evaluated_averaged", [False, True])
def test_of_two_equal_runs_the_evaluated_one_counts(tmp_path, is_evaluated_averaged):
    """With and without averaging the raw parameters are the same, and only one of the two may be evaluated."""
    config = STUDIES["table-1"].adjusted(updates=1000, rates=[1e-3], only=["vimco-K5"])[0]
    for averaging in (None, 0.999):
        likelihood = 91.25 if is_evaluated_averaged == (averaging is not None) else None
        recorded_run(tmp_path, dataclasses.replace(config, averaging=averaging), likelihood=likelihood)
    runs, _ = collected([tmp_path])
    assert number(runs, Cell.of(config), 1000).value == number(runs[::-1], Cell.of(config), 1000).value == 91.25


def test_a_run_that_is_being_extended_keeps_its_number_with_its_length(tmp_path):
    """Until its new best parameters are evaluated, whose number then has the new length."""
    config = RunConfig(num_samples=5, updates=1000)
    path = recorded_run(tmp_path / "runs", config, likelihood=93.0)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": 1500, "validation_bound": -90.0}) + "\n")

    def measured():
        found = number(collected([tmp_path])[0], Cell.of(config), 1000)
        return found.value, found.updates

    assert measured() == (93.0, 1000)
    assert list(directory.load(path).stages) == [1000]
    summary = json.loads((path / "summary.json").read_text())
    summary["evaluations"].append({**summary["evaluations"][0], "update": 1500, "negative_log_likelihood": 92.0})
    (path / "summary.json").write_text(json.dumps(summary))
    assert measured() == (92.0, 1500)


def test_a_run_that_was_extended_keeps_its_number_until_it_is_evaluated(tmp_path):
    config = RunConfig(num_samples=5, updates=1000)
    path = recorded_run(tmp_path / "runs", config, likelihood=93.0)
    extended(path, 1500, -90.0)
    found = number(collected([tmp_path])[0], Cell.of(config), 1000)
    assert (found.value, found.updates) == (93.0, 1000)


def test_a_claim_is_not_judged_at_a_rate_that_was_worse_by_then(tmp_path):
    """VIMCO at 1e-3 was ahead after 1000 updates, but evaluated after 4000 alone; at 3e-4 after 1000."""
    config = RunConfig(data="binarized-mnist", num_samples=5, updates=4000, learning_rate=1e-3)
    recorded_run(tmp_path, config, bound=-90.0, likelihood=90.0)
    slow = dataclasses.replace(config, updates=1000, learning_rate=3e-4)
    other = dataclasses.replace(config, updates=1000, estimator="rws")
    recorded_run(tmp_path, slow, bound=-130.0, likelihood=99.0)
    recorded_run(tmp_path, other, bound=-97.0, likelihood=97.0)
    check = by_likelihoods([Cell.of(config), Cell.of(other)], lambda values: values[0] < values[1])
    verdict = check(collected([tmp_path])[0])
    assert (verdict.verdict, verdict.evidence) == (
        "not yet",
        "VIMCO (5): 90.00 (4k updates), RWS (5): 97.00 (1k updates)",
    )
    recorded_run(tmp_path, dataclasses.replace(config, updates=1000), name="shorter", bound=-88.0, likelihood=96.0)
    assert check(collected([tmp_path])[0]).verdict == "seen"


def test_a_claim_is_not_judged_while_a_better_rate_is_in_training(tmp_path):
    """After 1000 updates the unfinished run at 1e-3 was ahead, and it is not evaluated there."""
    slow = RunConfig(data="binarized-mnist", num_samples=5, updates=1000, learning_rate=3e-4)
    other = dataclasses.replace(slow, estimator="rws")
    recorded_run(tmp_path, slow, bound=-100.0, likelihood=99.0)
    recorded_run(tmp_path, other, bound=-97.0, likelihood=97.0)
    check = by_likelihoods([Cell.of(slow), Cell.of(other)], lambda values: values[0] < values[1])
    assert check(collected([tmp_path])[0]).verdict == "not seen"
    fast = dataclasses.replace(slow, learning_rate=1e-3, updates=2000)
    recorded_run(tmp_path, fast, bound=-80.0, is_finished=False)
    assert check(collected([tmp_path])[0]).verdict == "not yet"


def test_an_extension_that_is_not_evaluated_replaces_no_better_number_of_before(tmp_path):
    """3e-4 is ahead at the new end; after 1000 updates, where both were evaluated, 1e-3 was."""
    config = RunConfig(data="binarized-mnist", num_samples=5, updates=1000)
    recorded_run(tmp_path, config, bound=-95.0, likelihood=95.0)
    slow = dataclasses.replace(config, learning_rate=3e-4)
    path = recorded_run(tmp_path, slow, bound=-99.0, likelihood=99.0)
    extended(path, 4000, -90.0)
    found = number(collected([tmp_path])[0], Cell.of(config), 1000)
    assert (found.value, found.updates, found.runs[0].config.learning_rate) == (95.0, 1000, 1e-3)


def test_a_shorter_run_serves_where_the_longest_was_not_evaluated(tmp_path):
    """At the same rate: the number stands beside its own length. At another it would be a worse choice."""
    config = RunConfig(data="binarized-mnist", num_samples=5, updates=4000)
    recorded_run(tmp_path, config, bound=-90.0)
    other = dataclasses.replace(config, learning_rate=3e-4, updates=1000)
    recorded_run(tmp_path, other, bound=-99.0, likelihood=99.0)
    assert number(collected([tmp_path])[0], Cell.of(config), 1000) is None
    recorded_run(tmp_path, dataclasses.replace(config, updates=1000), name="short", bound=-95.0, likelihood=95.0)
    found = number(collected([tmp_path])[0], Cell.of(config), 1000)
    assert (found.value, found.updates) == (95.0, 1000)


def test_the_best_model_keeps_its_place_until_its_extension_is_evaluated(tmp_path):
    config = RunConfig(data="binarized-mnist", updates=1000)
    path = recorded_run(tmp_path, config, name="a", bound=-90.0, likelihood=90.0)
    recorded_run(tmp_path, dataclasses.replace(config, num_samples=2), name="b", bound=-99.0, likelihood=99.0)
    extended(path, 1500, -89.0)
    assert "samples.png of a." in STUDIES["samples"].section(collected([tmp_path])[0]).blocks[0].caption


def extended(path, updates, bound):
    """Write what an extension leaves that has ended and was not evaluated yet."""
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": updates, "validation_bound": bound}) + "\n")
    summary = json.loads((path / "summary.json").read_text())
    stage = {"updates": summary["updates"], "evaluations": summary["evaluations"]}
    best = {"update": updates, "validation_bound": bound}
    summary |= {"updates": updates, "best": best, "evaluations": [], "stages": [stage]}
    (path / "summary.json").write_text(json.dumps(summary))


def test_cells_that_differ_in_layers_are_told_apart(tmp_path):
    cells = [Cell.of(RunConfig(num_samples=5, layers=layers)) for layers in ((50,), (50, 100))]
    for check in (by_likelihoods(cells, falls), by_curves(cells, falls)):
        evidence = check([]).evidence
        assert "VIMCO (5) 50" in evidence
        assert "VIMCO (5) 50-100" in evidence


def test_one_seed_at_a_better_rate_does_not_hide_the_seeds(tmp_path):
    study = STUDIES["table-1"]
    config = RunConfig(data="binarized-mnist", num_samples=5, updates=1000, learning_rate=1e-3)
    for seed in range(3):
        recorded_run(tmp_path, dataclasses.replace(config, seed=seed), bound=-100.0 - seed, likelihood=95.0 + seed)
    recorded_run(tmp_path, dataclasses.replace(config, learning_rate=3e-3), bound=-99.0, likelihood=94.0)
    (bounds,) = spread_over_seeds(study, collected([tmp_path])[0])
    assert [entry.text for entry in bounds.rows[0][1:5]] == ["−100.00", "−101.00", "−102.00", "−101.00"]
    (likelihoods,) = likelihoods_of_seeds(study, collected([tmp_path])[0])
    assert [entry.text for entry in likelihoods.rows[0][1:5]] == ["95.00", "96.00", "97.00", "96.00"]


def test_seeds_are_compared_at_the_rate_with_the_longest_trainings(tmp_path):
    """3e-3 is ahead for one seed, and the other has half of the updates there so far."""
    config = RunConfig(data="binarized-mnist", num_samples=5, updates=1000)
    for seed, rate, updates, bound in ((0, 1e-3, 1000, -100.0), (1, 1e-3, 1000, -101.0), (0, 3e-3, 1000, -99.0)):
        recorded_run(tmp_path, dataclasses.replace(config, seed=seed, learning_rate=rate, updates=updates), bound=bound)
    recorded_run(tmp_path, dataclasses.replace(config, seed=1, learning_rate=3e-3, updates=500), bound=-105.0)
    (table,) = spread_over_seeds(STUDIES["table-1"], collected([tmp_path])[0])
    assert [entry.text for entry in table.rows[0][1:3]] == ["−100.00", "−101.00"]


def test_seeds_are_evaluated_at_the_rate_of_the_table(tmp_path):
    """Seed 1 makes 3e-3 the rate of the cell, so seed 0 is needed there, whichever seed the command names."""
    bounds = {(0, 1e-3): -95.0, (0, 3e-3): -96.0, (1, 1e-3): -95.5, (1, 3e-3): -94.0}
    for (seed, rate), bound in bounds.items():
        config = RunConfig(data="binarized-mnist", num_samples=5, updates=1000, seed=seed, learning_rate=rate)
        likelihood = 95.0 if (seed, rate) == (0, 1e-3) else None
        recorded_run(tmp_path / "runs", config, bound=bound, likelihood=likelihood)
    trainings = planned(STUDIES["table-1"].adjusted(updates=1000, seeds=(1,), only=["vimco-K5"]), tmp_path)
    due = {task.path for task in evaluations_due(trainings, 1000)}
    assert due == {run.path for run in chosen(collected([tmp_path])[0], Cell.of(trainings[0].config))}
    assert len(due) == 2


def test_a_likelihood_that_is_not_a_number_is_not_the_best(tmp_path):
    config = RunConfig(data="binarized-mnist", updates=1000)
    recorded_run(tmp_path, config, name="a", bound=-90.0, likelihood=math.nan)
    recorded_run(tmp_path, dataclasses.replace(config, learning_rate=3e-4), name="b", bound=-93.0, likelihood=92.0)
    assert "samples.png of b." in STUDIES["samples"].section(collected([tmp_path])[0]).blocks[0].caption


def test_a_run_that_is_being_extended_is_not_replaced_by_a_worse_one(tmp_path):
    """Its distance from the paper and the rise of its bound are those of its last end, too.

    From update 1000 to 2000 the bound of a record rises by 60 (e^(−10/3) − e^(−20/3)) = 2.06.
    """
    config = RunConfig(data="binarized-mnist", num_samples=5, updates=2000)
    path = recorded_run(tmp_path / "runs", config, likelihood=93.0)
    recorded_run(tmp_path / "runs", dataclasses.replace(config, learning_rate=3e-4), bound=-120.0)
    lines = [{"update": u, "validation_bound": bound} for u, bound in ((4000, -99.0), (8000, -95.0))]
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    runs, _ = collected([tmp_path])
    measured = number(runs, Cell.of(config), 1000)
    assert (measured.value, measured.updates, len(runs)) == (93.0, 2000, 2)
    assert last_doubling(directory.load(path)) == pytest.approx(4.0)
    assert last_doubling(directory.load(path), "best", 2000) == pytest.approx(2.06, abs=0.005)
    text = write_report([tmp_path], tmp_path / "report")[0].read_text()
    assert "+0.20<br><sub>2k updates, last doubling +2.06</sub>" in text
    assert "93.00 ± 0.25<br><sub>test, K = 1000, best weights, after 2k updates</sub>" in text


def test_an_evaluation_of_parameters_that_were_replaced_is_no_number(tmp_path):
    """`vimco evaluate` may read the best parameters of update 1000, and end after the training, at 2000."""
    config = RunConfig(num_samples=5, updates=2000)
    path = recorded_run(tmp_path / "runs", config, likelihood=92.0)
    summary = json.loads((path / "summary.json").read_text())
    early = {**summary["evaluations"][0], "update": 1000, "negative_log_likelihood": 95.0}
    summary["evaluations"].insert(0, early)
    (path / "summary.json").write_text(json.dumps(summary))
    assert directory.load(path).evaluation(1000)["negative_log_likelihood"] == 92.0
    assert "95.00" not in write_report([tmp_path / "runs"], tmp_path / "report")[0].read_text()
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": 2500, "train_bound": -90.0}) + "\n")
    assert number(collected([tmp_path / "runs"])[0], Cell.of(config), 1000).value == 92.0
    (path / "summary.json").write_text(json.dumps({**summary, "evaluations": [early]}))
    assert number(collected([tmp_path / "runs"])[0], Cell.of(config), 1000) is None


def test_runs_on_other_data_of_the_same_name_are_refused(tmp_path, capfd):
    study = ["study", "table-1", "--data", "synthetic", "--updates", "1000", "--rates", "0.001", "--only", "vimco-K5"]
    (training,) = planned(
        STUDIES["table-1"].adjusted(updates=1000, rates=[1e-3], data="synthetic", only=["vimco-K5"]), tmp_path
    )
    recorded_run(training.path.parent, training.config, likelihood=93.0)  # its checksum is all zeros
    assert vimco(*study, "--output", tmp_path) == 2
    assert "was trained on other data of the name synthetic (checksum 000000000000…" in capfd.readouterr().err
    assert [due.path for due in evaluations_due([training], 100)] == [training.path]
    elsewhere = dataclasses.replace(training, path=tmp_path / "runs" / "other")
    assert evaluations_due([elsewhere], 100) == []


def test_a_study_all_of_whose_runs_fail_at_once_says_why(tmp_path, capfd, monkeypatch):
    study = ["study", "table-1", "--data", "synthetic", "--updates", "10", "--rates", "0.001", "--only", "vimco-K5"]
    program = "import sys; sys.exit('Error: no luck (ValueError: Error: of another)')"
    monkeypatch.setattr(local, "PROGRAM", ("-c", program))
    assert vimco(*study, "--output", tmp_path) == 1
    assert "no luck (ValueError: Error: of another)" in capfd.readouterr().err


def test_a_run_that_fails_is_not_tried_at_every_moment_of_its_measurements(tmp_path):
    trainings = planned([RunConfig(updates=1000)], tmp_path)
    engine = AtOnce()
    engine.ending = lambda: Ending(failure="no luck")
    outcome = run_study(trainings, 100, engine, Watch(), lambda _: ("vimco",))
    assert len(outcome.failures) == len(engine.started) == 1


@pytest.mark.parametrize("lines_left", [0, 10])
def test_lost_metrics_are_told(tmp_path, lines_left):
    path = recorded_run(tmp_path, RunConfig(updates=1000)) / "metrics.jsonl"
    assert not collected([tmp_path])[1]
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines_left]))
    (problem,) = collected([tmp_path])[1]
    assert f"it ends at update {50 * lines_left}, before the end of the run" in problem


def test_a_claim_may_be_defined_before_its_model(tmp_path):
    """Titles are read when it is checked, so the order of plugins does not matter."""
    cell = Cell.of(RunConfig(num_samples=5))._replace(task="not-yet-registered")
    assert by_likelihoods([cell], falls)
    assert by_curves([cell], falls)


def test_a_link_to_a_run_is_told(tmp_path):
    (tmp_path / "studies").mkdir()
    path = recorded_run(tmp_path / "elsewhere", RunConfig(updates=100))
    (tmp_path / "studies" / "linked").symlink_to(path)
    runs, (problem,) = collected([tmp_path / "studies"])
    assert runs == []
    assert problem == "linked is a link to a run elsewhere, and left out: move the run here."


@pytest.mark.parametrize(
    ("updates", "text"), [(200_000, "200k"), (1_010_000, "1.01M"), (10_000_010, "10000.01k"), (1_234_567, "1,234,567")]
)
def test_no_digit_of_a_length_is_lost(updates, text):
    assert short_count(updates) == text


def test_a_budget_beyond_the_target_keeps_the_horizon(tmp_path, monkeypatch):
    """A run with a schedule that a user has extended by hand, and stopped past the target of its study."""
    config = dataclasses.replace(STUDIES["beyond"].adjusted()[0], updates=50)
    (training,) = planned([config], tmp_path)
    monkeypatch.setattr(tasks, "latest_update", lambda _: 72)
    words = training.arguments()
    assert words[words.index("--updates") + 1] == "72"
    assert words[words.index("--schedule-updates") + 1] == "50"
    assert digest(training.up_to(0.5).config) == digest(config)


def test_a_logarithmic_axis_leaves_out_what_is_not_positive():
    curves = [Curve("a", "", [(1, 0.5), (2, 0.0)], "#000000"), Curve("b", "", [(1, 0.0)], "#000000")]
    picture = plot("errors", {"wrong": curves}, "errors", "", is_logarithmic=True)
    assert [(curve.label, curve.points) for curve in picture.plot.panels["wrong"]] == [("a", [(1, 0.5)])]


def test_no_seed_is_refused():
    with pytest.raises(UsageError, match="--seeds needs one or more numbers"):
        STUDIES["table-1"].adjusted(seeds=())


def test_a_pattern_matches_whole_parts():
    labels = [label(run) for run in STUDIES["table-1"].adjusted(updates=1, rates=[1e-3], only=["vimco-K5"])]
    assert labels == ["generative-200-200-200-vimco-K5-lr0.001-seed0"]
    assert len(STUDIES["table-1"].adjusted(updates=1, rates=[1e-3], only=["vimco-K5*"])) == 2  # and K50


def test_an_unknown_study_is_told_with_the_known_ones():
    with pytest.raises(UsageError, match="one of attention, beyond, beyond-halves, estimators, figure-1"):
        STUDIES["table-2"]


# Names.


def test_a_digest_is_blind_to_budget_and_cadence_only():
    config = RunConfig()
    blind = {
        "updates": 7,
        "epochs": 2.0,
        "minutes": 1.0,
        "log_every": 3,
        "validate_every": 9,
        "checkpoint_seconds": 1.0,
        "tensorboard": True,
    }
    for name, value in blind.items():
        assert digest(dataclasses.replace(config, **{name: value})) == digest(config), name
    seeing = {
        "task": "structured",
        "layers": (200, 200),
        "symmetric": True,
        "estimator": "nvil",
        "num_samples": 6,
        "slice_size": 2,
        "data": "binarized-mnist",
        "learning_rate": 3e-4,
        "schedule": "cosine",
        "warmup_updates": 5,
        "batch_size": 25,
        "adam_epsilon": 1e-4,
        "clip": 1.0,
        "weight_decay": 0.01,
        "averaging": 0.9,
        "precision": "float64",
        "seed": 1,
    }
    names = {digest(dataclasses.replace(config, **{name: value})) for name, value in seeing.items()}
    assert len(names | {digest(config)}) == len(seeing) + 1
    others = {
        "proposal",
        "schedule_updates",
        "binarize",
        "init_from",
        "estimator_options",
        "task_options",
    }  # seen together with others, below
    assert {*blind, *seeing, *others} == {field.name for field in dataclasses.fields(RunConfig)}


def test_the_horizon_of_a_schedule_counts():
    config = RunConfig(schedule="cosine", updates=100)
    assert digest(config) != digest(dataclasses.replace(config, updates=200))
    assert digest(config) == digest(RunConfig(schedule="cosine", schedule_updates=100, updates=30))


def test_paths_count_as_they_are_written(tmp_path):
    for name in ("a.npz", "b.npz"):
        (tmp_path / name).write_bytes(b"the same")
    assert digest(RunConfig(data=str(tmp_path / "a.npz"))) != digest(RunConfig(data=str(tmp_path / "b.npz")))
    assert digest(RunConfig(init_from="a")) != digest(RunConfig(init_from="b"))


def test_data_that_are_not_there_are_told_before_anything_is_planned(tmp_path):
    for data in ("minst", str(tmp_path / "moved.npz")):
        with pytest.raises(UsageError, match="neither a data set's name"):
            STUDIES["means"].adjusted(updates=1, data=data)


def test_names_do_not_change_from_version_to_version():
    """Old runs are found by these names: SHA-256 of the JSON of the fields that differ from the defaults."""
    content = b'{"data": "binarized-mnist", "num_samples": 20, "task": "structured"}'
    assert hashlib.sha256(content).hexdigest()[:12] == "08981fa1dc5a"
    name = "structured-learned-200-200-200-vimco-K20-lr0.001-seed0-08981fa1dc5a"
    assert run_name(STUDIES["figure-4"].runs()[1]) == name
    assert digest(RunConfig()) == hashlib.sha256(b"{}").hexdigest()[:12]


# Durations.


def test_the_estimate_takes_measured_speed_and_scales_the_rest_by_it(tmp_path):
    trainings = planned(
        STUDIES["table-1"].adjusted(updates=1000, rates=[1e-3], only=["vimco-K2", "vimco-K50"]), tmp_path
    )
    fast, slow = durations.seconds_of_each(trainings)
    assert slow > fast
    config = trainings[0].config
    trainings[0].path.mkdir(parents=True)
    data = {"name": "binarized-mnist", "checksum": "", "image_shape": [28, 28]}
    record = {"config": config.to_json(), "environment": {}, "data": data}
    (trainings[0].path / "config.json").write_text(json.dumps(record))
    compiling = '{"update": 200, "updates_per_second": 0.5}\n'
    (trainings[0].path / "metrics.jsonl").write_text(compiling + '{"update": 400, "updates_per_second": 2.0}\n')
    fast, slow = durations.seconds_of_each(trainings)
    assert fast == pytest.approx(600 / 2 + durations.SECONDS_TO_START)
    rough = [durations.rough_seconds_per_update(training.config, (28, 28)) for training in trainings]
    assert slow == pytest.approx(1000 / 2 * rough[1] / rough[0] + durations.SECONDS_TO_START)
    assert durations.seconds_left([fast, slow], 2) == pytest.approx(slow)
    larger = planned([dataclasses.replace(config, batch_size=96)], tmp_path)
    assert durations.seconds_of_each([*trainings, *larger])[:2] == [fast, slow]
    assert durations.seconds_left([60.0, 60.0, 60.0], 2) == 90


def test_smaller_images_take_less_time(tmp_path):
    def seconds(data):
        options = {"updates": 100_000, "data": data, "rates": [1e-3], "only": ["vimco-K50"]}
        return durations.seconds_of_each(planned(STUDIES["table-1"].adjusted(**options), tmp_path))[0]

    (tmp_path / "unknown.npz").touch()
    assert seconds("synthetic") < seconds("mnist") == seconds(str(tmp_path / "unknown.npz"))


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.0, "40 s"), (300.0, "5 min"), (12_000.0, "3 h 20 min"), (187_000.0, "2 d 4 h")]
)
def test_times_in_words(seconds, text):
    assert durations.words(seconds) == text


# The runner.


@dataclass(frozen=True)
class Note:
    """A task for tests: a command of the small program below."""

    path: Path
    behaviour: str = "works"

    @property
    def name(self):
        return self.path.name

    def arguments(self):
        if self.behaviour == "refuses":
            raise UsageError("not this one")
        return [self.behaviour, str(self.path)]


# Write a file with its cores; or fail; or be killed, always or the first time; or wait for the request to stop.
SMALL_PROGRAM = """
import os, pathlib, signal, sys, time
behaviour, path = sys.argv[1], pathlib.Path(sys.argv[2])
first = path.with_suffix(".first")
if behaviour == "fails":
    sys.exit("Error: no luck")
if behaviour == "dies" or (behaviour == "dies once" and not first.exists()):
    first.touch()
    os.kill(os.getpid(), signal.SIGKILL)
if behaviour == "waits":
    def save(*_):
        path.write_text("saved")
        sys.exit(143)
    signal.signal(signal.SIGTERM, save)
    first.touch()
    time.sleep(600)
path.write_text(repr(sorted(os.sched_getaffinity(0))))
print("Note: wrote", path.name, file=sys.stderr)
"""


@pytest.fixture
def small_program(monkeypatch):
    monkeypatch.setattr(local, "PROGRAM", ("-c", SMALL_PROGRAM))


class Endings(Watch):
    def __init__(self):
        self.all = {}

    def ended(self, task, ending):
        assert task.name not in self.all
        self.all[task.name] = ending


class AtOnce:
    """Another engine, whose jobs end at once."""

    number = 1

    def __init__(self):
        self.started = []

    def start(self, arguments):
        self.started.append(arguments)
        return self

    def ending(self):
        return Ending(("a note",))

    def stop(self):
        raise AssertionError("nobody asked for it")

    kill = stop


def test_any_engine_serves(tmp_path):
    endings, engine = Endings(), AtOnce()
    outcome = execute([Note(tmp_path / name) for name in "ab"], engine, endings)
    assert engine.started == [["works", str(tmp_path / "a")], ["works", str(tmp_path / "b")]]
    assert endings.all["a"].notes == ("a note",)
    assert (outcome.failures, outcome.signal_number) == ([], None)


@dataclasses.dataclass
class KilledOnce:
    """An engine whose first process is killed."""

    number = 1
    started = 0

    def start(self, arguments):
        self.started += 1
        ending = Ending(is_lost=self.started == 1)
        return SimpleNamespace(ending=lambda: ending)


def test_a_killed_process_leaves_a_line_and_no_bar(tmp_path, capsys):
    engine = KilledOnce()
    display = StudyDisplay([], engine)
    assert execute([Note(tmp_path / "a")], engine, display).failures == []
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["started: a", "killed: a: its process died", "started: a", "done: a"]
    assert [task.description for task in display.bars.tasks] == ["the whole study"]


def test_a_run_that_cannot_be_read_stops_no_study(tmp_path, capsys):
    words = ["study", "structured-nll", "--data", "synthetic", "--updates", "40", "--output", str(tmp_path)]
    configurations = STUDIES["structured-nll"].adjusted(data="synthetic", updates=40)
    bad, good, *_ = planned(configurations, tmp_path)
    for training in (bad, good):
        recorded_run(training.path.parent, training.config, name=training.path.name)
    (bad.path / "summary.json").write_text("")
    with (good.path / "metrics.jsonl").open("a") as file:  # a validation whose line was lost has no speed
        file.write('{"update": 40, "validation_bound": -99.0}\n')
    assert vimco(*words, "--dry-run") == 0
    out, err = capsys.readouterr()
    assert f"{bad.name} is left out. {bad.path / 'summary.json'} cannot be read" in err
    assert f"move {bad.path} away" in err
    assert re.search(rf"^{re.escape(good.name)} +done", out, re.MULTILINE)
    assert not re.search(rf"^{re.escape(bad.name)} ", out, re.MULTILINE)


def test_a_script_has_no_workers(tmp_path, capsys):
    assert vimco("study", "structured-nll", "--script", "slurm", "--workers", "3", "--output", tmp_path) == 2
    assert "leave --workers out" in capsys.readouterr().err


def test_no_file_beside_the_data_takes_the_place_of_a_module(tmp_path):
    (tmp_path / "statistics.py").write_text("raise SystemExit('the wrong module')\n")
    shown = subprocess.run(
        [sys.executable, *command(["--version"])], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("vimco ")


def test_a_failure_stops_nobody_and_a_killed_process_is_tried_once_more(tmp_path, small_program):
    endings = Endings()
    behaviours = {"a": "dies", "b": "fails", "c": "works", "d": "dies once", "e": "refuses"}
    outcome = execute([Note(tmp_path / name, how) for name, how in behaviours.items()], LocalWorkers(2, 1), endings)
    failures = {task.name: reason for task, reason in outcome.failures}
    assert failures == {
        "a": "its process died, twice: it was killed, or the memory did not suffice",
        "b": "no luck",
        "e": "not this one",
    }
    assert endings.all["c"].notes == ("wrote c",)
    assert endings.all["d"] == Ending(("wrote d",))
    assert set(endings.all) == set(behaviours)


def test_cores_are_shared_out(tmp_path, small_program):
    cores = sorted(os.sched_getaffinity(0))
    execute([Note(tmp_path / "all")], LocalWorkers(1), Watch())
    assert (tmp_path / "all").read_text() == repr(cores)
    if len(cores) > 1:
        engine = LocalWorkers(2, 1)
        jobs = [engine.start(["works", str(tmp_path / name)]) for name in "ab"]
        while any(job.ending() is None for job in jobs):
            time.sleep(0.01)
        assert [(tmp_path / name).read_text() for name in "ab"] == [repr(cores[:1]), repr(cores[1:2])]


def test_a_signal_asks_every_run_to_save(tmp_path, small_program):
    class Stopping(Endings):
        is_sent = False

        def waited(self, running):
            if not self.is_sent and all((tmp_path / f"{name}.first").exists() for name in "ab"):
                self.is_sent = True
                signal.raise_signal(signal.SIGINT)

    endings = Stopping()
    outcome = execute([Note(tmp_path / name, "waits") for name in "abc"], LocalWorkers(2, 1), endings)
    assert outcome.signal_number == signal.SIGINT
    assert outcome.failures == []
    assert {name: ending.is_stopped for name, ending in endings.all.items()} == {"a": True, "b": True}
    assert [(tmp_path / name).read_text() for name in "ab"] == ["saved", "saved"]
    assert not (tmp_path / "c.first").exists()


ORPHANING = """
import os, pathlib, signal, sys, time
from vimco.studies.runner import local
local.PROGRAM = ("-c", sys.argv[1])
local.LocalWorkers(1).start(["waits", sys.argv[2]])
while not pathlib.Path(sys.argv[2] + ".first").exists():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a run continues to its end")
def test_runs_save_and_end_when_the_study_is_killed(tmp_path):
    subprocess.run([sys.executable, "-c", ORPHANING, SMALL_PROGRAM, str(tmp_path / "a")], check=False)
    for _ in range(1000):
        if (tmp_path / "a").exists() and (tmp_path / "a").read_text() == "saved":
            return
        time.sleep(0.01)
    raise AssertionError("the run continued after its study")


BLOCKED = """
import dataclasses, os, time
from pathlib import Path
import equinox as eqx
from vimco import VIMCO
from vimco.estimators.estimator import ESTIMATORS
from vimco.studies import Study, register_study
from vimco.studies.cells import PAPER

class Blocked(VIMCO):
    own: object = eqx.field(static=True, default_factory=object)  # unlike the one of the trace before the run

    def __call__(self, samples, batch=None):
        if any(Path("studies").rglob("checkpoint.safetensors")):  # the first is written just before the run compiles
            Path(str(os.getpid())).touch()
            while True:
                time.sleep(0.1)
        return super().__call__(samples, batch)

ESTIMATORS.register("blocked", "Blocked")(lambda _key, _mean: Blocked())

def runs():
    return [dataclasses.replace(PAPER, layers=(2,), estimator="blocked", num_samples=2)]

register_study(Study("blocked", "Runs that never end to compile", "nothing", runs, lambda study, found: []))
"""


def test_a_study_that_is_stopped_while_its_run_compiles_ends(tmp_path):
    """The compilation would never end by itself."""
    (tmp_path / "blocked.py").write_text(BLOCKED)
    arguments = ["study", "blocked", "--plugin", "blocked.py", "--data", "synthetic", "--updates", "9"]
    study = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (found := [path for path in tmp_path.iterdir() if path.name.isdigit()]):
        assert study.poll() is None, study.communicate()
        time.sleep(0.05)
    study.terminate()
    _, errors = study.communicate(timeout=200)
    assert study.returncode == 143, errors
    assert "nothing is lost" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(found[0].name), 0)


# Every study, at toy size, from end to end.


UPDATES = 40
OPTIONS = ["--data", "synthetic", "--updates", str(UPDATES), "--rates", "0.001", "--averaging", "0.9"]


def vimco(*arguments):
    """Run the program in this process, with workers in separate processes; return its status."""
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as leaving:
        return leaving.code
    return 0


FEW = 30  # samples of an evaluation, in place of a thousand
# The program, whose models have 4 units where their configurations say 200.
FEW_UNITS = """
import dataclasses
from vimco.runs import directory, experiment

def small_model(config, *rest, build=experiment.untrained_model):
    return build(dataclasses.replace(config, layers=tuple(units // 50 for units in config.layers)), *rest)

directory.untrained_model = experiment.untrained_model = small_model
from vimco_start import main
main()
"""
STUDY_OF_FEW_UNITS = f"""
from vimco.studies.runner import local
local.PROGRAM = ("-c", {FEW_UNITS!r})
from vimco_start import main
main()
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Return a folder in which the runs of the tests below are done once: few units, evaluated with few samples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "PROGRAM", ("-c", FEW_UNITS))
        for name in ("table-1", "means"):
            patch.setitem(STUDIES, name, dataclasses.replace(STUDIES[name], evaluation_samples=FEW))
        yield tmp_path_factory.mktemp("toy")


def test_likelihoods_have_the_papers_number_of_samples():
    assert STUDIES["table-1"].evaluation_samples == STUDIES["means"].evaluation_samples == 1000
    assert STUDIES["structured-nll"].evaluation_samples == 100


def run_paths(toy, name, *only, **changes):
    options = {"updates": UPDATES, "data": "synthetic", "rates": [1e-3], "averaging": 0.9, "only": only, **changes}
    return [training.path for training in planned(STUDIES[name].adjusted(**options), toy)]


def test_table_1_and_one_failed_run(toy, capfd):
    (blocked,) = run_paths(toy, "table-1", "rws-K5")
    blocked.mkdir(parents=True)
    (blocked / "notes.txt").write_text("mine")  # a directory that holds something else is refused
    command = ["study", "table-1", *OPTIONS, "--only", "vimco-K5", "nvil-K5", "rws-K5", "--workers", 2, "--output", toy]
    assert vimco(*command) == 1
    printed = capfd.readouterr()
    assert "Failed: generative-200-200-200-rws-K5-lr0.001-seed0" in printed.err
    assert "not an empty directory" in printed.err
    for path in run_paths(toy, "table-1", "vimco-K5", "nvil-K5"):
        summary = directory.load(path).summary()
        assert summary["updates"] == UPDATES
        kinds = {(e["weights"], e["num_samples"], e["update"]) for e in summary["evaluations"]}
        assert kinds == {
            ("best", FEW, summary["best"]["update"]),
            ("best-average", FEW, summary["best_average"]["update"]),
        }
        likelihood = summary["evaluations"][0]["negative_log_likelihood"]
        assert f"{likelihood:.2f} ± " in printed.out
    assert (blocked / "notes.txt").read_text() == "mine"


def test_a_study_that_is_done_does_nothing(toy, capfd):
    before = {path: path.stat().st_mtime_ns for path in (toy / "runs").rglob("*")}
    assert vimco("study", "table-1", *OPTIONS, "--only", "vimco-K5", "nvil-K5", "--output", toy) == 0
    shorter = [option if option != str(UPDATES) else "10" for option in OPTIONS]
    assert vimco("study", "table-1", *shorter, "--only", "vimco-K5", "nvil-K5", "--output", toy) == 0
    printed = capfd.readouterr().out
    assert "started" not in printed
    assert printed.count("2 done, 0 to do") == 2
    assert before == {path: path.stat().st_mtime_ns for path in (toy / "runs").rglob("*")}


@pytest.mark.parametrize("name", ["figure-1", "figure-3"])
def test_figures_of_runs_that_are_there(toy, capfd, name):
    assert vimco("study", name, *OPTIONS, "--only", "vimco-K5", "nvil-K5", "--output", toy) == 0
    assert "started" not in capfd.readouterr().out
    picture = (toy / f"{name}.svg").read_text()
    assert "VIMCO (5)" in picture
    assert "NVIL (5)" in picture


def test_an_interrupted_study_goes_on(toy, capfd):
    """Figure 2, stopped by a signal during a run, and resumed."""
    only = ["--only", "learned-*-vimco-K20"]
    (path,) = run_paths(toy, "figure-2", *only[1:])
    options = [option if option != str(UPDATES) else "1000000" for option in OPTIONS]
    arguments = [sys.executable, "-c", STUDY_OF_FEW_UNITS, "study", "figure-2", *options, *only, "--output", str(toy)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (path / "metrics.jsonl").exists() or not (path / "metrics.jsonl").read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate()
    assert process.returncode == 128 + signal.SIGINT, error
    assert "stopped: structured-learned-200-200-200-vimco-K20" in out
    assert "The same command resumes" in error
    done = checkpoints.latest_update(path)
    earlier = directory.load(path).metrics()
    assert 0 < done < 1_000_000
    assert directory.load(path).summary() == {}

    options = [option if option != str(UPDATES) else str(done + UPDATES) for option in OPTIONS]
    assert vimco("study", "figure-2", *options, *only, "--output", toy) == 0
    printed = capfd.readouterr().out
    assert f"cut off at {earlier[-1]['update']:,}" in printed
    run = directory.load(path)
    assert run.summary()["updates"] == done + UPDATES
    assert run.metrics()[: len(earlier)] == earlier
    assert (toy / "figure-2.svg").exists()


def test_figure_4_shows_the_model_of_figure_2(toy, capfd):
    assert vimco("study", "figure-4", *OPTIONS, "--output", toy) == 0
    assert "1 done, 0 to do" in capfd.readouterr().out
    (path,) = run_paths(toy, "figure-4")
    assert (toy / "figure-4.png").read_bytes() == (path / "samples.png").read_bytes()


def test_structured_likelihoods(toy, capfd):
    assert vimco("study", "structured-nll", *OPTIONS, "--only", "prior-*-vimco", "--output", toy) == 0
    (path,) = run_paths(toy, "structured-nll", "prior-*-vimco")
    raw, averaged = directory.load(path).summary()["evaluations"]
    assert (raw["num_samples"], averaged["num_samples"]) == (100, 100)
    printed = capfd.readouterr().out
    for value in (raw["negative_log_likelihood"], averaged["negative_log_likelihood"]):
        assert f"{value:.2f} ± " in printed


def test_means_take_the_run_of_table_1(toy, capfd):
    (path,) = run_paths(toy, "means", "vimco-K5")
    value = directory.load(path).summary()["evaluations"][0]["negative_log_likelihood"]
    assert vimco("study", "means", *OPTIONS, "--only", "vimco-K5", "--output", toy) == 0
    printed = capfd.readouterr().out
    assert "started" not in printed
    assert f"{value:.2f} ± " in printed
    assert "geometric mean" in (toy / "means.svg").read_text()


def test_an_evaluation_of_other_parameters_does_not_count(toy):
    """An extended run may have found better parameters: their evaluation is due again."""
    options = {"updates": UPDATES, "data": "synthetic", "rates": [1e-3], "averaging": 0.9, "only": ["vimco-K5"]}
    trainings = planned(STUDIES["table-1"].adjusted(**options), toy)
    assert evaluations_due(trainings, FEW) == []
    assert [task.weights for task in evaluations_due(trainings, FEW - 1)] == ["best", "best-average"]
    path = trainings[0].path / "summary.json"
    before = path.read_bytes()
    summary = json.loads(before)
    summary["evaluations"][0]["update"] -= 1
    try:
        path.write_text(json.dumps(summary))
        (task,) = evaluations_due(trainings, FEW)
        assert task.weights == summary["evaluations"][0]["weights"]
    finally:
        path.write_bytes(before)


def test_what_a_table_shows_is_what_is_evaluated(tmp_path):
    """A better run of another study is chosen from the folder, but never an unfinished one."""
    rates = {3e-4: (-95.0, True), 1e-3: (-100.0, True), 3e-3: (-90.0, False)}
    trainings = planned(STUDIES["table-1"].adjusted(updates=1000, only=["vimco-K5"]), tmp_path)
    for training in trainings:
        bound, is_finished = rates[training.config.learning_rate]
        recorded_run(training.path.parent, training.config, bound=bound, is_finished=is_finished)
    (task,) = evaluations_due([t for t in trainings if t.config.learning_rate == 1e-3], 1000)
    assert "lr0.0003" in task.path.name
    results, _ = collected([tmp_path])
    assert [run.path for run in chosen(results, Cell.of(trainings[0].config))] == [task.path]


def test_a_run_that_departs_from_the_protocol_is_evaluated_itself(tmp_path):
    trainings = planned(STUDIES["beyond"].adjusted(updates=1000, only=["K5", "K10"]), tmp_path)
    recorded_run(tmp_path / "runs", trainings[0].config, average=-90.0)
    recorded_run(tmp_path / "runs", trainings[1].config, is_finished=False)
    tasks = evaluations_due(trainings, 1000)
    assert [(task.path, task.weights) for task in tasks] == [(trainings[0].path, "best")]  # the average was recorded


def test_an_evaluation_with_many_samples_is_several_tasks(tmp_path):
    (training,) = planned(STUDIES["iwae"].adjusted(updates=10, rates=[1e-3], only=["50-pathwise-K5"]), tmp_path)
    recorded_run(training.path.parent, training.config)

    class Two(AtOnce):
        number = 2

    for engine, count in ((AtOnce(), 1), (Two(), 5)):
        outcome = run_study([training], STUDIES["iwae"].evaluation_samples, engine, Watch())
        assert outcome.failures == []
        whole = ["evaluate", str(training.path), "--num-samples", "5000", "--weights", "best", "--seed", "0"]
        parts = [["--part", str(i), "5"] for i in range(1, 6)] if count > 1 else [[]]
        assert engine.started == [[*whole, *part] for part in parts]


def test_the_program_in_the_documentation_works_as_printed(tmp_path, monkeypatch):
    text = (Path(__file__).parent.parent / "docs" / "how-to" / "studies.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    for training in planned(STUDIES["structured-nll"].adjusted(updates=20_000, rates=[1e-3]), Path("studies")):
        recorded_run(training.path.parent, training.config, likelihood=50.0, num_samples=100)  # nothing left to train
    outcome = runpy.run_path("program.py", run_name="__main__")["outcome"]
    assert (outcome.failures, outcome.signal_number) == ([], None)


def test_a_report_of_the_toy_runs(toy, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in toy.rglob("*")}
    assert vimco("report", toy, "--output", tmp_path / "report") == 0
    assert before == {path: path.stat().st_mtime_ns for path in toy.rglob("*")}
    text = (tmp_path / "report" / "results.md").read_text()
    for path in (toy / "runs").iterdir():
        assert (path.name in text) == (path / "config.json").exists()
    names = {path.name for path in (tmp_path / "report" / "figures").iterdir()}
    figures = {"figure-1.svg", "figure-2.svg", "figure-3.svg", "figure-4.png"}
    pictures = figures | {"means.svg", "estimators.svg", "samples.png"}
    assert names == pictures


def test_a_dry_run_lists_and_does_nothing(tmp_path, capfd):
    assert vimco("study", "table-1", "--dry-run", "--output", tmp_path / "new") == 0
    printed = capfd.readouterr().out
    assert printed.count("missing") == 39
    assert "0 done, 39 to do" in printed
    assert "evaluations come on top" in printed
    assert not (tmp_path / "new").exists()


def test_the_studies_are_listed(capfd):
    assert vimco("study") == 0
    printed = capfd.readouterr().out
    assert all(name in printed for name in STUDIES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study", "table-9"], "There is no study 'table-9'"),
        (["study", "table-1", "--workers", "0"], "--workers must be positive"),
        (["study", "table-1", "--rates", "-1"], "--rates must be positive and finite; got -1"),
        (["report"], "Name one or more folders"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments, message, capfd):
    assert vimco(*arguments) == 2
    assert message in capfd.readouterr().err


def test_a_directory_whose_name_lies_is_refused(tmp_path):
    (training,) = planned(STUDIES["means"].adjusted(updates=1, rates=[1e-3], only=["vimco-K5"]), tmp_path)
    training.path.mkdir(parents=True)
    other = dataclasses.replace(training.config, seed=1)
    data = {"name": "binarized-mnist", "checksum": "", "image_shape": [28, 28]}
    record = {"config": other.to_json(), "environment": {}, "data": data}
    (training.path / "config.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match="another configuration"):
        training.arguments()
