"""The study of recipes: which runs it compares, and at which length."""

import dataclasses
import json
import shlex

import pytest
from recorded import recorded_run

from vimco.cli.program import _parsed
from vimco.errors import UsageError
from vimco.report.assembly import report
from vimco.runs.config import RunConfig
from vimco.runs.recipes import RECIPES
from vimco.studies import STUDIES
from vimco.studies.document import Table
from vimco.studies.results import collected
from vimco.studies.study import kind

STUDY = STUDIES["recipes"]


def test_every_recipe_is_a_set_of_options():
    for recipe in RECIPES.values():
        RunConfig(**recipe.options, updates=1000)


def test_the_warm_up_takes_half_of_the_updates():
    """So the recipe with 200,000 updates is the published run; at 50,000 it is the estimator's default."""

    def config_of(words):
        return _parsed(
            shlex.split(f"train --recipe warm --data binarized-mnist --num-samples 10 {words}")
        ).config.checked

    published = config_of("--updates 200000 --estimator-options updates=100000")
    assert published.estimator_options == ("updates=100000",)
    assert config_of("--updates 200000").identity == published.identity
    assert kind(config_of("--updates 200000 --averaging 0.9")) == kind(STUDIES["beyond"].runs()[2])
    assert config_of("--updates 50000").estimator_options == ()
    assert config_of("--minutes 5 --schedule-updates 1000").estimator_options == ()
    assert config_of("--updates 1").estimator_options == ("updates=1",)


def test_options_beside_a_recipe_with_a_warm_up_win():
    def options_of(words):
        return _parsed(shlex.split(f"train --recipe warm --updates 1000 {words}")).config.checked.estimator_options

    assert options_of("--estimator rloo") == ()
    assert options_of("--estimator-options updates=25000") == ()
    assert set(options_of("--estimator-options start=0.1")) == {"start=0.1", "updates=500"}


def test_runs_are_compared_at_the_length_that_most_share(tmp_path):
    """A longer run at a constant rate is read at that length; one with a schedule is left out."""
    constant, _, cosine, falling, *_ = STUDY.adjusted(updates=1000, averaging=0.9)
    recorded_run(tmp_path, dataclasses.replace(constant, updates=2000), bound=-100.0, average=-99.5)
    recorded_run(tmp_path, cosine, bound=-98.0, average=-97.5)
    recorded_run(tmp_path, falling, bound=-97.0)
    recorded_run(tmp_path, dataclasses.replace(falling, updates=4000), bound=-90.0)
    stopped = dataclasses.replace(falling, schedule_updates=4000)  # at 1000, where its rate has hardly fallen
    recorded_run(tmp_path, stopped, name="stopped", bound=-80.0)
    others = STUDY.adjusted(updates=1000, averaging=0.9)[4:]
    runs, problems = collected([tmp_path])
    assert not problems
    table = next(block for block in STUDY.show(STUDY, runs) if isinstance(block, Table))
    assert table.headings[0] == "1k updates"
    rows = {row[0].text: [entry.text for entry in row[1:]] for row in table.rows}
    halfway = next(bound for update, bound in runs[0].curve("validation_bound") if update == 1000)
    assert rows == {
        "constant, 1e-3 (the default)": [f"−{-halfway:.2f}", f"−{-halfway - 0.5:.2f}"],
        "cosine from 1e-3": ["−98.00", "−97.50"],
        "cosine from 3e-3 (--recipe falling)": ["−97.00", "–"],
    }
    missing = (
        "VIMCO (schedule cosine, warmup updates 1000)",
        "VIMCO, f̂ = 0 (schedule cosine)",
        "VIMCO, Rényi warm-up (schedule cosine)",
        "VIMCO, Rényi warm-up updates=50000 (schedule cosine)",
        "RLOO (ELBO) (schedule cosine)",
        "VIMCO (schedule cosine, batch size 96)",
    )
    assert STUDY.section(runs).blocks[-1].text == f"Not run: {'; '.join(f'{title}, K = 5' for title in missing)}."
    for other in others:
        recorded_run(tmp_path, other, bound=-96.0)
    assert STUDY.section(collected([tmp_path])[0]).blocks[-1] == STUDY.show(STUDY, collected([tmp_path])[0])[-1]


def test_larger_mini_batches_are_compared_after_as_many_images(tmp_path):
    """With four times the images in a mini-batch, 250 updates stand beside 1000; a schedule of 1000 is another run."""
    for updates in (None, 50_000):
        constant, *_, larger, _ = STUDY.adjusted(averaging=0.9, updates=updates)
        assert (constant.updates, constant.batch_size, larger.updates, larger.batch_size) == (50_000, 24, 12_500, 96)
    recorded_run(tmp_path, dataclasses.replace(constant, updates=1000), bound=-99.0)
    recorded_run(tmp_path, dataclasses.replace(larger, updates=250), bound=-98.0, average=-97.5)
    recorded_run(tmp_path, dataclasses.replace(larger, updates=1000), bound=-90.0)
    table, _, plotted = STUDY.show(STUDY, collected([tmp_path])[0])
    assert table.headings[0] == "1k updates"
    assert [[entry.text for entry in row] for row in table.rows] == [
        ["constant, 1e-3 (the default)", "−99.00", "–"],
        ["cosine from 3e-3, batch 96", "−98.00", "−97.50"],
    ]
    (curves,) = plotted.plot.panels.values()
    assert [curve.points[-1][0] for curve in curves] == [1000, 1000]


def test_beyond_shows_the_recipes_beside_the_protocol_and_the_paper(tmp_path):
    """The longest run by a recipe counts, of several such the best by validation, whatever its rate; other schedules
    are other runs; cool-downs have a source."""
    study = STUDIES["beyond"]
    _, five, _, _, _, decaying, *_ = study.adjusted(updates=1000, averaging=0.999)
    assert (five.num_samples, five.weight_decay, decaying.num_samples, decaying.weight_decay) == (5, 0.0, 5, 0.01)
    recorded_run(tmp_path, five, likelihood=91.0, average=90.5)
    recorded_run(tmp_path, decaying, likelihood=90.8)
    recorded_run(tmp_path, dataclasses.replace(five, updates=500), likelihood=80.0)
    recorded_run(tmp_path, dataclasses.replace(five, learning_rate=1e-3), bound=-120.0, likelihood=60.0)
    recorded_run(tmp_path, dataclasses.replace(five, schedule="constant"), likelihood=70.0)
    protocol = RunConfig(data="binarized-mnist", num_samples=5, updates=2000, averaging=0.999)
    recorded_run(tmp_path, protocol, likelihood=93.0, average=92.5)
    cool_down = dataclasses.replace(protocol, **RECIPES["cool-down"].options, updates=50)
    recorded_run(tmp_path, dataclasses.replace(cool_down, init_from="some/long-run"), likelihood=91.7, average=91.6)
    recorded_run(tmp_path, cool_down, likelihood=60.0)
    without = dataclasses.replace(cool_down, weight_decay=0.0, init_from="some/long-run")
    recorded_run(tmp_path, without, likelihood=91.8)
    runs, problems = collected([tmp_path])
    assert not problems
    table, remark = study.show(study, runs)
    assert "vimco-K5" not in remark.text
    rows = {row[0].text: [entry.text for entry in row[1:]] for row in table.rows}
    assert rows["5"] == ["92.50", "91.00", "90.80", "91.80", "91.70", "92.8", "91.4"]
    assert rows["2"] == ["–", *["not run"] * 4, "93.5", "–"]
    assert table.rows[1][2].detail == "1k updates"
    assert table.rows[1][5].detail == "50 updates after those of long-run"
    recorded_run(tmp_path, dataclasses.replace(cool_down, init_from="vimco-K5"), likelihood=91.7)
    assert len(study.show(study, collected([tmp_path])[0])) == 2  # a run of the same name is not the published one
    recorded_run(tmp_path, dataclasses.replace(protocol, updates=1_010_000), name="published", likelihood=92.3)
    assert study.show(study, collected([tmp_path])[0])[-1].text.startswith("vimco-K5 is VIMCO at K = 5")


def test_seeds_of_a_recipe_are_averaged_like_those_of_the_protocol(tmp_path):
    """The best of several would have an advantage. A shorter seed does not count, nor does one of another source."""
    study = STUDIES["beyond"]
    _, five, *_ = study.adjusted(updates=1000)
    protocol = RunConfig(data="binarized-mnist", num_samples=5, updates=1000)
    cool_down = dataclasses.replace(protocol, **RECIPES["cool-down"].options, init_from="long")
    for seed, value in enumerate((94.0, 92.0, 95.0)):
        for config in (five, protocol, cool_down):
            config = dataclasses.replace(config, seed=seed, averaging=0.999)
            recorded_run(tmp_path, config, likelihood=value, average=value, bound=-100.0 + seed)
    recorded_run(tmp_path, dataclasses.replace(five, seed=3, updates=500), likelihood=80.0, bound=-90.0)
    other = dataclasses.replace(cool_down, seed=3, averaging=0.999, init_from="other")
    recorded_run(tmp_path, other, likelihood=80.0, bound=-110.0)
    row = study.show(study, collected([tmp_path])[0])[0].rows[1]
    assert [(row[i].text, row[i].detail) for i in (1, 2, 5)] == [
        ("93.67", "1k updates, 3 seeds"),
        ("93.67", "1k updates, 3 seeds"),
        ("93.67", "1k updates after those of long, 3 seeds"),
    ]


def test_a_longer_training_by_a_recipe_stands_for_the_planned_one(tmp_path):
    """The study does not plan it, since its warm-up is longer, and shows it, also when it is extended."""
    study = STUDIES["beyond"]

    def config_of(words):
        return _parsed(
            shlex.split(f"train --recipe warm-decay --data binarized-mnist --num-samples {words}")
        ).config.checked

    def shown():
        runs = collected([tmp_path])[0]
        assert "other-runs" not in [section.anchor for section in report(runs).sections]
        entry = study.show(study, runs)[0].rows[1][3]
        return entry.text, entry.detail

    recorded_run(tmp_path, config_of("5 --updates 200000"), likelihood=92.0)
    longer = config_of("5 --updates 800000")
    path = recorded_run(tmp_path, longer, likelihood=91.0)
    assert shown() == ("91.00", "800k updates")
    extended = dataclasses.replace(longer, updates=900_000, schedule_updates=800_000)
    (path / "config.json").write_text(
        json.dumps({**json.loads((path / "config.json").read_text()), "config": extended.to_json()})
    )
    assert shown() == ("91.00", "800k updates")
    # another warm-up is no seed of the same run
    study_at = dataclasses.replace(study.adjusted(updates=800_000)[5], seed=1)
    assert study_at.estimator_options != longer.estimator_options
    recorded_run(tmp_path, study_at, bound=-101.0, likelihood=95.0)
    assert shown() == ("91.00", "800k updates")


def test_a_run_by_a_recipe_with_another_number_of_samples_is_another_run(tmp_path):
    """The table has no row for it."""
    config = RunConfig(data="binarized-mnist", num_samples=20, updates=200_000, **RECIPES["warm"].options)
    config = RECIPES["warm"].completed(config)
    recorded_run(tmp_path, config, likelihood=92.0)
    runs = collected([tmp_path])[0]
    assert not STUDIES["beyond"].is_run(runs)
    assert "other-runs" in [section.anchor for section in report(runs).sections]


def test_runs_by_another_rate_or_schedule_are_no_seeds_of_a_recipe(tmp_path):
    """Nor is a run that was stopped before the end of its schedule, whose rate has hardly fallen."""
    study = STUDIES["beyond"]
    _, five, *_ = study.adjusted(updates=1000)
    recorded_run(tmp_path, five, bound=-95.0, likelihood=92.0)
    recorded_run(tmp_path, dataclasses.replace(five, seed=1, learning_rate=1e-3), bound=-99.0, likelihood=96.0)
    recorded_run(tmp_path, dataclasses.replace(five, seed=2, schedule_updates=4000), bound=-99.0, likelihood=98.0)
    entry = study.show(study, collected([tmp_path])[0])[0].rows[1][2]
    assert (entry.text, entry.detail) == ("92.00", "1k updates")


def test_every_seed_of_a_cool_down_belongs_to_its_study(tmp_path):
    """The section links the first of them only."""
    config = RunConfig(data="binarized-mnist", updates=1000, **RECIPES["cool-down"].options, init_from="long")
    for seed in range(3):
        recorded_run(tmp_path, dataclasses.replace(config, seed=seed), likelihood=92.0 + seed)
    sections = report(collected([tmp_path])[0]).sections
    assert "Other runs" not in [section.title for section in sections]


def test_a_recipe_that_is_being_extended_keeps_its_number(tmp_path):
    _, five, *_ = STUDIES["beyond"].adjusted(updates=1000)
    path = recorded_run(tmp_path, five, likelihood=92.0)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": 1500, "validation_bound": -90.0}) + "\n")
    entry = STUDIES["beyond"].show(STUDIES["beyond"], collected([tmp_path])[0])[0].rows[1][2]
    assert (entry.text, entry.detail) == ("92.00", "1k updates")


@pytest.mark.parametrize("name", ["beyond", "beyond-halves"])
def test_numbers_of_other_data_are_not_beside_the_papers_without_a_word(name, tmp_path):
    study = STUDIES[name]
    config = dataclasses.replace(study.adjusted(updates=1000)[0], data="mnist")
    recorded_run(tmp_path, config, likelihood=60.0)
    assert "not comparable" in study.show(study, collected([tmp_path])[0])[-1].text


def test_a_cool_down_needs_a_run_to_go_on_from():
    with pytest.raises(UsageError, match="--init-from"):
        _parsed(shlex.split("train --recipe cool-down --updates 1000"))
    assert _parsed(shlex.split("train --recipe cool-down --updates 1000 --init-from runs/long")).config.init_from


def test_seeds_of_one_candidate_do_not_outvote_the_others(tmp_path):
    """Table 1 has the constant rates, perhaps longer and with more seeds."""
    constant, _, cosine, falling, *_ = STUDY.adjusted(updates=1000)
    for seed in range(4):
        recorded_run(tmp_path, dataclasses.replace(constant, updates=2000, seed=seed))
    recorded_run(tmp_path, cosine)
    recorded_run(tmp_path, falling)
    table = STUDY.show(STUDY, collected([tmp_path])[0])[0]
    assert (table.headings[0], len(table.rows)) == ("1k updates", 3)


def test_beyond_shows_cool_downs_without_a_run_by_warm(tmp_path):
    """They are planned by no study, so they alone must bring its section into a report."""
    options = {**RECIPES["cool-down"].options, "init_from": "long"}
    recorded_run(tmp_path, RunConfig(data="binarized-mnist", updates=1000, **options), likelihood=91.7)
    runs, _ = collected([tmp_path])
    table = next(block for block in STUDIES["beyond"].section(runs).blocks if isinstance(block, Table))
    assert table.rows[1][5].text == "91.70"
    titles = [section.title for section in report(runs).sections]
    assert "Other runs" not in titles


def test_beyond_halves_shows_each_recipe_beside_the_protocol(tmp_path):
    """The prior by `falling` and `raiko`, the learned proposal by `warm` over half of the updates; no other counts."""
    study = STUDIES["beyond-halves"]
    prior, raiko, larger, learned = study.adjusted(updates=1000, averaging=0.999)
    assert (prior.estimator, prior.estimator_options) == ("vimco", ())
    assert (raiko.proposal, raiko.estimator) == ("prior", "straight-through")
    assert (learned.estimator, learned.estimator_options) == ("renyi-warmup", ("updates=100000",))
    assert dataclasses.replace(larger, layers=(200, 200)) == raiko
    assert {run.schedule for run in (prior, raiko, larger, learned)} == {"cosine"}
    recorded_run(tmp_path, prior, likelihood=55.0, average=54.5, num_samples=100)
    recorded_run(tmp_path, raiko, likelihood=53.0, average=52.5, num_samples=100)
    recorded_run(tmp_path, larger, likelihood=51.0, average=50.5, num_samples=100)
    recorded_run(tmp_path, dataclasses.replace(learned, schedule="constant"), likelihood=40.0, num_samples=100)
    protocol = dataclasses.replace(learned, estimator="vimco", estimator_options=(), schedule="constant")
    protocol = dataclasses.replace(protocol, learning_rate=1e-3)
    recorded_run(tmp_path, protocol, likelihood=46.0, average=45.5, num_samples=100)
    runs, problems = collected([tmp_path])
    assert not problems
    table, _ = study.show(study, runs)
    assert [[entry.text for entry in row[1:]] for row in table.rows] == [
        ["–", "–", "falling", "55.00", "54.50", "56.5", "–"],
        ["–", "–", "raiko", "53.00", "52.50", "56.5", "–"],
        ["–", "–", "raiko", "51.00", "50.50", "–", "50.2"],
        ["46.00", "45.50", "warm", "not run", "not run", "46.1", "–"],
    ]
