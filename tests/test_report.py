"""The content of a report: which runs are chosen, the tables, what is missing. Nothing trains here."""

import dataclasses
import json
import math
import re
import runpy
import shlex
from html import unescape
from pathlib import Path

import pytest
import tyro
from recorded import recorded_run

from vimco import cli
from vimco.cli.evaluate import Evaluate
from vimco.cli.train import Train
from vimco.errors import UsageError
from vimco.report import write_report
from vimco.report.assembly import report
from vimco.report.markdown import markdown
from vimco.runs.config import RunConfig
from vimco.runs.curve import Curve
from vimco.runs.figures import figure_bytes, panels
from vimco.runs.recipes import RECIPES
from vimco.studies import STUDIES, Cell
from vimco.studies.claims import Verdict, by_curves
from vimco.studies.curves import curves, distinct_curves, signal_points
from vimco.studies.document import Picture, Table, Text, Versions, short_count
from vimco.studies.paper import iwae, table_1
from vimco.studies.paper.protocol import generative
from vimco.studies.results import chosen, collected, number, numbers_of_equal_length
from vimco.studies.study import label, train_command

UPDATES = 2000


def run_of(estimator, K, rate=1e-3, seed=0, **changes):
    config = RunConfig(data="binarized-mnist", estimator=estimator, num_samples=K, learning_rate=rate, seed=seed)
    return dataclasses.replace(config, **{"updates": UPDATES, **changes})


def results_in(folder):
    results, problems = collected([folder])
    assert problems == []
    return results


def table_of(name, folder, which=0):
    """Return a study's table as a mapping from (row's heading, column's heading) to its entry."""
    section = STUDIES[name].section(results_in(folder))
    found = [b for block in section.blocks for b in (block.tables.values() if isinstance(block, Versions) else [block])]
    table = [block for block in found if isinstance(block, Table)][which]
    return {
        (row[0].text, heading): entry
        for row in table.rows
        for heading, entry in zip(table.headings[1:], row[1:], strict=True)
    }


def test_a_copy_of_a_run_that_was_not_evaluated_hides_no_evaluated_one(tmp_path):
    """Neither in the mean over seeds nor in a claim, whether it is as long or longer."""
    for seed, value in enumerate((95.0, 96.0, 97.0)):
        recorded_run(tmp_path, run_of("vimco", 10, seed=seed), likelihood=value)
    recorded_run(tmp_path, run_of("vimco", 50), likelihood=93.0)
    recorded_run(tmp_path / "again", run_of("vimco", 10), bound=-99.9)
    assert table_of("table-1", tmp_path)["10", "VIMCO"].text == "96.00 ± 0.58"
    assert verdict("VIMCO improves from K = 10 to 50", tmp_path) == "seen"
    recorded_run(tmp_path / "longer", run_of("vimco", 10, updates=2 * UPDATES), bound=-99.0)
    assert table_of("table-1", tmp_path)["10", "VIMCO"].text == "96.00 ± 0.58"
    assert verdict("VIMCO improves from K = 10 to 50", tmp_path) == "seen"


@pytest.mark.parametrize("infinite", ["vimco", "vimco-arithmetic"])
def test_a_likelihood_that_is_not_finite_is_no_evidence_and_never_the_lowest(tmp_path, infinite):
    for name, value in (("vimco", 94.0), ("vimco-arithmetic", 95.0), ("vimco-leave-one-out", 96.0)):
        path = recorded_run(tmp_path, run_of(name, 5), likelihood=value)
        if name == infinite:
            summary = json.loads((path / "summary.json").read_text())
            summary["evaluations"][0]["negative_log_likelihood"] = None
            (path / "summary.json").write_text(json.dumps(summary))
    (marked,) = [entry.text for entry in table_of("means", tmp_path).values() if entry.is_best]
    assert marked == ("95.00 ± 0.25" if infinite == "vimco" else "94.00 ± 0.25")
    for K in (2, 10):
        recorded_run(tmp_path, run_of("vimco", K), likelihood=93.0 if K == 10 else 97.0)
    expected = "not yet" if infinite == "vimco" else "seen"
    assert verdict("VIMCO improves from K = 2 to 5 to 10", tmp_path) == expected


def test_the_rate_is_chosen_by_validation_not_by_likelihood(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 2, 3e-4), bound=-101, likelihood=90.0)
    recorded_run(tmp_path, run_of("vimco", 2, 1e-3), bound=-100, likelihood=92.0)
    entry = table_of("table-1", tmp_path)["2", "VIMCO"]
    assert entry.text == "92.00 ± 0.25"
    assert entry.detail == "2k updates, rate 0.001"


@pytest.mark.parametrize("better_rate", [3e-4, 3e-3])  # before and after the finished one, in the order of names
def test_an_unfinished_run_hides_no_measured_number(tmp_path, better_rate):
    recorded_run(tmp_path, run_of("vimco", 2, 1e-3), bound=-100, likelihood=92.0)
    recorded_run(tmp_path, run_of("vimco", 2, better_rate), bound=-90, is_finished=False)
    assert table_of("table-1", tmp_path)["2", "VIMCO"].text == "92.00 ± 0.25"


@pytest.mark.parametrize("change", [{"seed": 1}, {"update": UPDATES // 2}, {"split": "validation"}])
def test_only_an_evaluation_of_the_best_parameters_with_the_usual_seed_counts(tmp_path, change):
    path = recorded_run(tmp_path, run_of("vimco", 2), likelihood=92.0) / "summary.json"
    summary = json.loads(path.read_text())
    summary["evaluations"][0].update(change)
    path.write_text(json.dumps(summary))
    assert table_of("table-1", tmp_path)["2", "VIMCO"].text == "not evaluated"


def marked(table, row):
    return {column for (of_row, column), entry in table.items() if of_row == row and entry.is_best}


def test_the_paper_stands_beside_and_the_lower_of_each_pair_is_marked(tmp_path):
    """The paper has 92.8, 93.7 and 93.4. Where ours was not measured, the paper's alone is no winner."""
    for estimator, value in (("vimco", 93.0), ("nvil", 92.0)):
        recorded_run(tmp_path, run_of(estimator, 5), likelihood=value)
    recorded_run(tmp_path, run_of("rws", 5))
    table = table_of("table-1", tmp_path)
    assert marked(table, "5") == {"NVIL", "VIMCO, paper"}
    assert marked(table, "10") == set()
    assert [table["5", f"{name}, paper"].text for name in ("VIMCO", "NVIL", "RWS")] == ["92.8", "93.7", "93.4"]
    assert table["1", "VIMCO"].text == "–"  # VIMCO has no K = 1


def test_where_nothing_is_published_the_lowest_of_equal_lengths_is_marked(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5), likelihood=93.0)
    recorded_run(tmp_path, run_of("vimco-arithmetic", 5), likelihood=92.0)
    recorded_run(tmp_path, run_of("vimco", 10), likelihood=93.0)
    recorded_run(tmp_path, dataclasses.replace(run_of("vimco-arithmetic", 10), updates=100), likelihood=92.0)
    table = table_of("means", tmp_path)
    assert marked(table, "5") == {"arithmetic mean"}
    assert marked(table, "10") == set()


def test_the_caption_says_what_is_marked_if_something_is(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5), likelihood=93.0)
    recorded_run(tmp_path, run_of("vimco-arithmetic", 5), likelihood=92.0)
    results = results_in(tmp_path)
    first, other = (STUDIES[name].section(results).blocks[0].caption for name in ("table-1", "means"))
    assert first.endswith("Marked: the lower of ours and the paper's, for each method that has both")
    assert other.endswith("Marked: the lowest of a row, where all were measured after equally many updates")


def test_the_numbers_of_other_data_are_not_compared_with_the_papers(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5, data="mnist"), likelihood=70.0)
    assert marked(table_of("table-1", tmp_path), "5") == set()
    assert "Marked" not in STUDIES["table-1"].section(results_in(tmp_path)).blocks[0].caption


def test_what_is_missing_is_said(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 2), bound=-99.5)
    recorded_run(tmp_path, run_of("nvil", 2), is_finished=False)
    table = table_of("table-1", tmp_path)
    assert table["2", "VIMCO"].text == "not evaluated"
    assert "validation bound −99.50 at 2k" in table["2", "VIMCO"].detail
    assert table["2", "NVIL"].text == "not evaluated"
    assert table["2", "RWS (wake)"].text == "not run"
    section = STUDIES["table-1"].section(results_in(tmp_path))
    assert (
        Text("Not run: NVIL, K = 1, 5, 10, 50; RWS (wake), K = 2, 5, 10, 50; VIMCO, K = 5, 10, 50.") in section.blocks
    )
    assert "Not run" in STUDIES["figure-2"].section(results_in(tmp_path)).blocks[0].text


def test_several_seeds_are_averaged_with_the_error_over_seeds(tmp_path):
    for seed, value in enumerate((90.0, 91.0, 95.0)):
        recorded_run(tmp_path, run_of("vimco", 10, seed=seed), likelihood=value)
    value = number(results_in(tmp_path), generative("vimco", 10)[0], 1000)
    assert value.value == pytest.approx(92.0)
    assert value.standard_error == pytest.approx((7 / 3) ** 0.5)  # variance (4 + 1 + 9) / 2 = 7, over 3 seeds
    assert "3 seeds" in table_of("table-1", tmp_path)["10", "VIMCO"].detail


def test_seeds_have_the_rate_of_the_best_run(tmp_path):
    """Another seed was run at the worse rate alone: it is no part of the number, nor of the claims."""
    recorded_run(tmp_path, run_of("vimco", 5), bound=-100.0, likelihood=90.0)
    recorded_run(tmp_path, run_of("vimco", 5, 3e-4), bound=-105.0, likelihood=97.0)
    recorded_run(tmp_path, run_of("vimco", 5, 3e-4, seed=1), bound=-104.0, likelihood=96.0)
    assert table_of("table-1", tmp_path)["5", "VIMCO"].text == "90.00 ± 0.25"
    (best,) = chosen(results_in(tmp_path), generative("vimco", 5)[0])
    assert (best.config.seed, best.config.learning_rate) == (0, 1e-3)
    recorded_run(tmp_path, run_of("vimco", 5, seed=1), bound=-101.0, likelihood=92.0)
    assert table_of("table-1", tmp_path)["5", "VIMCO"].text == "91.00 ± 1.00"


def test_curves_of_much_shorter_seeds_are_not_drawn(tmp_path):
    for seed, updates in enumerate((4000, 3000, 1000)):
        recorded_run(tmp_path, run_of("vimco", 5, seed=seed, updates=updates))
    drawn = curves(results_in(tmp_path), generative("vimco", 5))
    assert [curve.points[-1][0] for curve in drawn] == [4000, 3000]


def test_a_seed_without_a_finite_number_costs_no_report(tmp_path):
    """Its evaluation is null in JSON, as of an image that no sample can explain."""
    recorded_run(tmp_path, run_of("vimco", 10), likelihood=90.0)
    path = recorded_run(tmp_path, run_of("vimco", 10, seed=1), likelihood=91.0) / "summary.json"
    path.write_text(path.read_text().replace('"negative_log_likelihood": 91.0', '"negative_log_likelihood": null'))
    value = number(results_in(tmp_path), generative("vimco", 10)[0], 1000)
    assert math.isnan(value.value)
    assert math.isnan(value.standard_error)
    assert table_of("table-1", tmp_path, which=2)["VIMCO, K = 10", "standard deviation"].text == "nan"


def test_a_shorter_seed_is_left_out_of_an_average_and_shown_in_the_table_of_seeds(tmp_path):
    """A record of 4000 updates is 60 e^(−10/3) − 60 e^(−20/3) = 2.06 below its end at 2000, the last common update.

    The mean is −304.13 / 3; the squares of the differences from it are 0.47 + 2.85 + 5.65, and half of that is 2.12².
    """
    for seed, bound in enumerate((-100.0, -101.0)):
        recorded_run(tmp_path, run_of("vimco", 5, seed=seed, updates=4000), bound=bound, likelihood=92.0 + seed)
    recorded_run(tmp_path, run_of("vimco", 5, seed=2), bound=-99.0, likelihood=60.0)
    entry = table_of("table-1", tmp_path)["5", "VIMCO"]
    assert (entry.text, entry.detail) == ("92.50 ± 0.50", "4k updates, rate 0.001, 2 seeds")
    # Best in the end, and far behind at the common update: another rate is shown there.
    late = recorded_run(tmp_path, run_of("vimco", 5, 3e-4, updates=4000), bound=-90.0) / "metrics.jsonl"
    late.write_text(
        "".join(f'{{"update": {u}, "validation_bound": {-150 + 0.015 * u}}}\n' for u in range(200, 4001, 200))
    )
    # A seed that has just begun, or was given up before its first validation, changes nothing.
    begun = recorded_run(tmp_path, run_of("vimco", 5, seed=3), is_finished=False) / "metrics.jsonl"
    begun.write_text('{"update": 50, "train_bound": -120.0}\n')
    row = {heading: entry.text for (_, heading), entry in table_of("figure-1", tmp_path).items()}
    assert row == {
        "seed 0": "−102.06",
        "seed 1": "−103.06",
        "seed 2": "−99.00",
        "mean": "−101.38",
        "standard deviation": "2.12",
    }


def test_likelihoods_of_seeds_are_shown_after_equally_many_updates(tmp_path):
    """The long run of seed 0 has no fellow of its length; seed 2 was not evaluated. √((0.5² + 0.5²) / 1) = 0.71."""
    recorded_run(tmp_path, run_of("vimco", 5, updates=4000), bound=-90.0, likelihood=80.0)
    for seed, value in enumerate((92.0, 93.0, None)):
        recorded_run(tmp_path, run_of("vimco", 5, seed=seed), name=f"short-{seed}", likelihood=value)
    recorded_run(tmp_path, run_of("rws", 5), likelihood=91.0)
    row = {keys: entry.text for keys, entry in table_of("table-1", tmp_path, which=2).items()}
    assert row == {
        ("VIMCO, K = 5", "seed 0"): "92.00",
        ("VIMCO, K = 5", "seed 1"): "93.00",
        ("VIMCO, K = 5", "mean"): "92.50",
        ("VIMCO, K = 5", "standard deviation"): "0.71",
    }


def test_a_claim_is_judged_by_the_longest_seeds(tmp_path):
    """Were the short seed to count, the curves would be cut at its end, and its high bound would win for VIMCO."""
    recorded_run(tmp_path, run_of("vimco", 5, updates=4000), bound=-102.0)
    recorded_run(tmp_path, run_of("vimco", 5, seed=1), bound=-50.0)
    recorded_run(tmp_path, run_of("rws", 5, updates=4000), bound=-100.5)
    verdict = by_curves([*generative("vimco", 5), *generative("rws", 5)], lambda v: v[0] > v[1])(results_in(tmp_path))
    assert verdict == Verdict("not seen", "VIMCO (5): −102.00, RWS (5): −100.50 (up to update 4,000, rate 0.001)")


def test_an_unfinished_run_that_was_evaluated_has_a_number(tmp_path):
    path = recorded_run(tmp_path, run_of("vimco", 5), likelihood=93.0) / "summary.json"
    path.write_text(json.dumps({"evaluations": json.loads(path.read_text())["evaluations"]}))
    assert table_of("table-1", tmp_path)["5", "VIMCO"].text == "93.00 ± 0.25"


def test_averaged_parameters_have_a_table_of_their_own(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5, averaging=0.999), likelihood=93.0, average=92.4)
    recorded_run(tmp_path, run_of("nvil", 5), likelihood=94.0)
    raw, averaged = table_of("table-1", tmp_path), table_of("table-1", tmp_path, which=1)
    assert raw["5", "VIMCO"].text == "93.00 ± 0.25"
    assert averaged["5", "VIMCO"].text == "92.40 ± 0.25"
    assert averaged["5", "NVIL"].text == "not kept"


def test_the_distance_from_the_paper_and_the_last_doubling_are_said(tmp_path):
    """The paper has 92.8 and 93.4. The second half of the record rises by 60 e^(−10/3) − 60 e^(−20/3)."""
    recorded_run(tmp_path, run_of("vimco", 5, averaging=0.999), likelihood=93.0, average=92.4)
    recorded_run(tmp_path, run_of("rws", 5), likelihood=94.0)
    table = table_of("table-1", tmp_path, which=2)
    columns, detail = ("raw − paper", "averaged − paper"), "2k updates, last doubling +2.06"
    assert {row for row, _ in table} == {"VIMCO, K = 5", "RWS (wake), K = 5"}
    vimco, rws = ([table[f"{name}, K = 5", column] for column in columns] for name in ("VIMCO", "RWS (wake)"))
    assert [(entry.text, entry.detail) for entry in vimco] == [("+0.20", detail), ("−0.40", detail)]
    assert [(entry.text, entry.detail) for entry in rws] == [("+0.60", detail), ("–", "")]


def test_each_distance_has_the_length_of_its_own_run(tmp_path):
    """The best raw and the best averaged bound may be of two runs."""
    longer = dataclasses.replace(run_of("vimco", 5, 3e-4, averaging=0.999), updates=4000)
    recorded_run(tmp_path, run_of("vimco", 5, averaging=0.999), bound=-101, likelihood=93.0, average=90.0)
    path = recorded_run(tmp_path, longer, bound=-100, likelihood=92.0)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    worse = [{**line, "average_validation_bound": -150.0} for line in lines]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in worse))
    table = table_of("table-1", tmp_path, which=2)
    raw, averaged = (table["VIMCO, K = 5", f"{version} − paper"] for version in ("raw", "averaged"))
    assert (raw.text, averaged.text) == ("−0.80", "−2.80")
    assert raw.detail.startswith("4k updates")
    assert averaged.detail.startswith("2k updates")


def test_other_data_have_no_distance_from_the_paper(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5, data="mnist"), likelihood=93.0)
    captions = [
        block.caption for block in STUDIES["table-1"].section(results_in(tmp_path)).blocks if isinstance(block, Table)
    ]
    assert len(captions) == 1


def test_structured_likelihoods_are_those_of_two_layers_and_a_hundred_samples(tmp_path):
    changes = {"task": "structured", "layers": (200, 200), "proposal": "prior"}
    recorded_run(tmp_path, run_of("vimco", 20, **changes), likelihood=57.0, num_samples=100)
    recorded_run(tmp_path, run_of("vimco", 20, **{**changes, "proposal": "learned"}), likelihood=47.0, num_samples=1000)
    table = table_of("structured-nll", tmp_path)
    assert table["samples from the prior", "VIMCO"].text == "57.00 ± 0.25"
    assert table["samples from a learned proposal", "VIMCO"].text == "not evaluated"  # not with 100 samples
    assert table["samples from a learned proposal", "VIMCO, paper"].text == "46.1"


def test_runs_off_the_protocol_are_shown_apart(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5, clip=1.0), likelihood=80.0)
    results = results_in(tmp_path)
    assert chosen(results, Cell.of(results[0].config)) == []
    document = report(results)
    (others,) = [section for section in document.sections if section.anchor == "other-runs"]
    assert isinstance(others.blocks[-1], Picture)
    assert "clip 1.0" in markdown(document)


def test_a_run_that_a_study_shows_is_not_listed_as_another(tmp_path):
    """A cool-down is planned by no study, and shown by one."""
    recorded_run(tmp_path, run_of("vimco", 5, **RECIPES["cool-down"].options, init_from="long"), likelihood=91.0)
    recorded_run(tmp_path, STUDIES["beyond"].adjusted(updates=UPDATES)[0])
    assert "other-runs" not in [section.anchor for section in report(results_in(tmp_path)).sections]


def test_how_to_read_tables_is_said_once_and_a_note_names_its_data(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5), likelihood=93.0)
    path = recorded_run(tmp_path, run_of("vimco-arithmetic", 5, data="mnist"), likelihood=92.0) / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": "Grey."}))
    document = report(results_in(tmp_path))
    assert markdown(document).count("may have had fewer updates. ±") == 1
    assert document.introduction[-1] == "mnist: Grey."
    section = STUDIES["means"].section(results_in(tmp_path))
    assert any(isinstance(block, Text) and "± is the standard error" in block.text for block in section.blocks)


def test_curves_keep_their_style_and_an_empty_panel_says_so():
    short, long = [(1, -5.0), (2, -4.0)], [(i, -9.0 + i) for i in range(8)]
    curves = [Curve("NVIL (2)", "nvil", short, "#000000", "--"), Curve("VIMCO (2)", "vimco", long, "#0072B2")]
    left, right = panels({"one": curves, "two": []}, "bound").axes
    styles = {
        line.get_label(): (line.get_linestyle(), line.get_marker()) for line in left.lines if len(line.get_xdata())
    }
    assert styles == {"NVIL (2)": ("--", "."), "VIMCO (2)": ("-", "")}
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["NVIL (2)", "VIMCO (2)"]
    assert [text.get_text() for text in right.texts] == ["not run"]
    assert len(left.get_yticks()) > 1


def test_vector_graphics_have_short_coordinates_and_whole_names():
    curve = Curve("vimco-lr0.001", "", [(1, -5.12345), (2, -4.0), (3, -3.3)], "#000000")
    svg = figure_bytes(panels({"one": [curve]}, "bound"), "svg").decode()
    assert "vimco-lr0.001" in svg
    paths = re.findall(r' d="([^"]*)"', svg)
    assert paths
    assert not re.search(r"\.\d{3}|\n[A-Z]", " ".join(paths))


def test_smoothing_the_signal_keeps_its_root_mean_square(tmp_path):
    path = recorded_run(tmp_path, run_of("vimco", 5), is_finished=False)
    lines = [{"update": i, "signal_rms": 3.0 if i % 2 else 4.0} for i in range(1, 101)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    points = signal_points(results_in(tmp_path)[0])
    assert [update for update, _ in points] == list(range(2, 101))  # a hundred lines: two at a time
    assert {round(value, 6) for _, value in points} == {round(12.5**0.5, 6)}


def test_a_run_in_training_is_shown_as_far_as_it_is(tmp_path):
    path = recorded_run(tmp_path, run_of("vimco", 5), is_finished=False)
    (path / "metrics.jsonl").write_text("")
    assert table_of("table-1", tmp_path)["5", "VIMCO"].text == "in training"
    text = markdown(report(results_in(tmp_path)))
    assert "none yet" in text
    assert "not finished" in text


def test_the_same_runs_give_the_same_bytes_and_are_not_touched(tmp_path):
    for config in STUDIES["figure-3"].adjusted(updates=UPDATES, rates=[1e-3]):
        recorded_run(tmp_path / "runs", config, likelihood=92.0)
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    for name in ("one", "two"):
        write_report([tmp_path / "runs"], tmp_path / name)
    written = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert {"results.md", "index.html", "runs.json", "figures/figure-1.svg", "figures/figure-3.svg"} <= {
        str(path) for path in written
    }
    for path in written:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
    assert before == {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}


def test_the_text_links_to_files_that_exist_and_names_no_folder_of_this_machine(tmp_path):
    for config in STUDIES["figure-3"].adjusted(updates=UPDATES, rates=[1e-3]):
        recorded_run(tmp_path / "runs", config, likelihood=92.0)
    text_file, page, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    text = text_file.read_text()
    pictures = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert len(pictures) == 5  # figures 1 and 3, means and estimators (some of their runs are these), samples
    assert all((tmp_path / "report" / picture).exists() for picture in pictures)
    anchors = set(re.findall(r'<a id="([^"]+)">', text))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors
    for content in (text, page.read_text(), (tmp_path / "report" / "runs.json").read_text()):
        assert str(tmp_path) not in content


def test_remarks_follow_the_first_tables(tmp_path):
    recorded_run(tmp_path / "runs", run_of("vimco", 2), bound=-100, likelihood=92.0)
    (tmp_path / "remarks.txt").write_text("Short runs,\nall of them.\n\n\nOne < seed.\n")
    output = tmp_path / "report"
    words = ["report", tmp_path / "runs", "--output", output, "--remarks", tmp_path / "remarks.txt"]
    cli.main([str(word) for word in words])
    text, page = output / "results.md", output / "index.html"
    assert "## Remarks\n\nShort runs, all of them.\n\nOne \\< seed.\n\n<a id=" in text.read_text()
    order = [page.read_text().index(part) for part in ("92.00 ± 0.25", "One &lt; seed.", "validation bound (nats)")]
    assert order == sorted(order)
    with pytest.raises(UsageError, match="remarks cannot be read"):
        write_report([tmp_path / "runs"], tmp_path / "report", tmp_path / "nothing.txt")


def test_two_data_sets_are_kept_apart(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5), likelihood=92.0)
    recorded_run(tmp_path, run_of("vimco", 5, data="mnist"), likelihood=70.0)
    document = report(results_in(tmp_path))
    titles = [section.title for section in document.sections if "Table 1" in section.title]
    assert [title.split("(")[-1] for title in titles] == ["binarized-mnist)", "mnist)"]
    assert len({section.anchor for section in document.sections}) == len(document.sections)
    assert len({picture.file for picture in document.pictures}) == len(document.pictures)


def test_two_files_of_one_name_are_kept_apart(tmp_path):
    for folder, checksum, likelihood in (("a", "aa" * 32, 92.0), ("b", "bb" * 32, 70.0)):
        path = recorded_run(tmp_path / folder, run_of("vimco", 5, data=f"{folder}/own.npz"), likelihood=likelihood)
        record = json.loads((path / "config.json").read_text())
        record["data"]["checksum"] = checksum
        (path / "config.json").write_text(json.dumps(record))
    document = report(results_in(tmp_path))
    tables = {s.title.split("(")[-1]: s.blocks[0] for s in document.sections if "Table 1" in s.title}
    assert {title: table.rows[2][1].text for title, table in tables.items()} == {
        "own, aaaaaaaa)": "92.00 ± 0.25",
        "own, bbbbbbbb)": "70.00 ± 0.25",
    }


def test_every_curve_is_drawn_however_many_there_are():
    assert len(distinct_curves({f"run {i}": [(1, -1.0)] for i in range(40)})) == 40


def test_numbers_carry_the_commands_that_repeat_them(tmp_path):
    config = run_of("nvil", 10, seed=3, averaging=0.99)
    recorded_run(tmp_path, config, likelihood=92.0)
    text = markdown(report(results_in(tmp_path)))
    train, evaluate = [line for line in text.splitlines() if line.startswith("vimco ")]
    parsed = tyro.cli(Train, args=shlex.split(train)[2:])
    assert parsed.config.checked == config
    assert tyro.cli(Evaluate, args=shlex.split(evaluate)[2:]).num_samples == 1000
    assert evaluate.split()[2] == str(parsed.output)


def test_commands_can_be_typed_whatever_a_folder_is_called(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 5), name="it's mine; $HOME", likelihood=92.0)
    text = markdown(report(results_in(tmp_path)))
    train, evaluate = [shlex.split(line) for line in text.splitlines() if line.startswith("vimco ")]
    assert evaluate[:3] == ["vimco", "evaluate", "runs/it's mine; $HOME"]
    assert evaluate[2] == train[-1]


def test_the_documents_hold_commands_and_no_digests(tmp_path):
    """A configuration is in runs.json, and follows from the command: neither document makes a reader load it again."""
    configs = {label(config): config for config in (run_of("rws", 2), run_of("nvil", 5))}
    for config in configs.values():
        recorded_run(tmp_path / "runs", config)
    text, page, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    for document in (text.read_text(), unescape(page.read_text())):
        commands = re.findall(
            r"<details><summary>(.*?)</summary>.*?^(?:<pre><code>)?(vimco train .*?)$", document, re.S | re.M
        )
        assert {name: tyro.cli(Train, args=shlex.split(line)[2:]).config.checked for name, line in commands} == configs
        assert "checkpoint_seconds" not in document


def test_the_caption_of_a_picture_says_what_is_certain(tmp_path):
    """`vimco sample` may have replaced samples.png, from other parameters."""
    config = run_of("vimco", 20, task="structured")
    recorded_run(tmp_path, config)
    (picture,) = STUDIES["figure-4"].section(results_in(tmp_path)).blocks
    assert picture.caption.endswith(f"This is samples.png of {label(config)}.")


def test_the_samples_are_of_the_best_generative_run_that_has_a_picture(tmp_path):
    """A cool-down may be the best. What was not run is said in Table 1."""
    recorded_run(tmp_path, run_of("vimco", 5), likelihood=93.0)
    best = recorded_run(tmp_path, run_of("vimco", 5, init_from="long", schedule="cosine"), name="best", likelihood=91.0)
    recorded_run(tmp_path, run_of("vimco", 5, task="structured"), likelihood=50.0)
    (picture,) = STUDIES["samples"].section(results_in(tmp_path)).blocks
    assert "samples.png of best." in picture.caption
    (best / "samples.png").unlink()
    (picture,) = STUDIES["samples"].section(results_in(tmp_path)).blocks
    assert f"samples.png of {label(run_of('vimco', 5))}." in picture.caption


def test_an_estimator_without_a_title_keeps_its_name():
    assert generative("vimco", 5)[0].title == "VIMCO"
    assert generative("brand-new", 5)[0].title == "brand-new"


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        RunConfig(symmetric=True, layers=(3, 4), schedule="cosine", schedule_updates=7, clip=0.5, epochs=1.5),
        RunConfig(task="structured", proposal="prior", data="a file.npz", binarize=3, minutes=2.0, precision="float64"),
    ],
)
def test_a_command_gives_its_configuration_back(config):
    words = shlex.split(train_command(config, "somewhere else"))
    assert words[:2] == ["vimco", "train"]
    parsed = tyro.cli(Train, args=words[2:])
    assert (parsed.config.checked, str(parsed.output)) == (config, "somewhere else")


def test_records_for_programs_hold_configuration_and_summary(tmp_path):
    path = recorded_run(tmp_path / "runs", run_of("rws", 2), likelihood=94.0)
    write_report([tmp_path / "runs"], tmp_path / "report")
    record = json.loads((tmp_path / "report" / "runs.json").read_text())[label(run_of("rws", 2))]
    assert record["directory"] == path.name
    assert RunConfig.from_json(record["config"]) == run_of("rws", 2)
    assert record["summary"]["evaluations"][0]["negative_log_likelihood"] == 94.0


def test_folders_without_runs_and_damaged_ones_are_told(tmp_path):
    with pytest.raises(UsageError, match="no run in"):
        write_report([tmp_path], tmp_path / "report")
    with pytest.raises(UsageError, match="not a folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "report")
    recorded_run(tmp_path, run_of("vimco", 2), likelihood=93.0)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    _, page, problems = write_report([tmp_path], tmp_path / "report")
    assert len(problems) == 1
    assert "Could not be read" in page.read_text()


def test_a_folder_given_twice_counts_once(tmp_path):
    recorded_run(tmp_path, run_of("vimco", 2), name="mine")
    assert len(collected([tmp_path, tmp_path / "mine"])[0]) == 1


def claims():
    return [claim for study in STUDIES.values() for claim in study.claims]


def verdict(statement, folder):
    (claim,) = [claim for claim in claims() if statement in claim.statement]
    return claim.check(results_in(folder)).verdict


@pytest.mark.parametrize(("last", "expected"), [(91.0, "seen"), (93.5, "not seen"), (None, "not yet")])
def test_a_claim_about_likelihoods(tmp_path, last, expected):
    for K, value in ((2, 94.0), (5, 93.0), (10, 92.0), (50, last)):
        recorded_run(tmp_path, run_of("vimco", K), likelihood=value)
    assert verdict("VIMCO improves from K = 10 to 50", tmp_path) == expected
    assert verdict("VIMCO improves from K = 2 to 5 to 10", tmp_path) == "seen"


def test_autoencoders_keep_the_claims_and_active_units_of_their_paper(tmp_path):
    """The published numbers, as if they were measured here; deepest layers come first in a record."""
    for config in STUDIES["iwae"].adjusted(updates=1000, rates=[1e-3]):
        at = iwae.SIZES.index(config.num_samples)
        path = recorded_run(tmp_path, config, likelihood=iwae.PUBLISHED[config.layers][at], num_samples=5000)
        summary = json.loads((path / "summary.json").read_text())
        for record in summary["evaluations"]:
            record["active_units"] = list(iwae.PUBLISHED_UNITS[config.layers][at][::-1])
        (path / "summary.json").write_text(json.dumps(summary))
    verdicts = {c.statement: c.check(results_in(tmp_path)).verdict for c in claims() if "Burda" in c.place}
    assert set(verdicts.values()) == {"seen"}, verdicts
    blocks = iwae.show(STUDIES["iwae"], results_in(tmp_path))
    (units,) = [block for block in blocks if getattr(block, "caption", "").startswith("Active units")]
    rows = [[entry.text for entry in row] for row in units.rows]
    assert rows[0] == ["50, K = 1", "19", "19", "19"]
    assert rows[5] == ["50-100, K = 50", "24 + 7", "24 + 7", "24 + 7"]
    likelihoods = blocks[0].tables["raw"] if hasattr(blocks[0], "tables") else blocks[0]
    assert [entry.text for entry in likelihoods.rows[2]][-1] == "87.10"
    path = next(tmp_path.glob("gaussian-50-pathwise-K1-*")) / "summary.json"  # averaged parameters count where they are
    summary = json.loads(path.read_text())
    summary["evaluations"].append({**summary["evaluations"][0], "weights": "best-average", "active_units": [3]})
    path.write_text(json.dumps(summary))
    blocks = iwae.show(STUDIES["iwae"], results_in(tmp_path))
    entry = next(b for b in blocks if getattr(b, "caption", "").startswith("Active units")).rows[0][1]
    assert (entry.text, entry.detail) == ("3", "1k updates, averaged parameters")
    stages = [{"updates": 1000, "evaluations": summary["evaluations"]}]  # the run is extended, and not evaluated yet
    extended = {"updates": 4000, "best": {"update": 4000, "validation_bound": -80.0}, "evaluations": []}
    path.write_text(json.dumps({**summary, **extended, "stages": stages}))
    with path.with_name("metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": 4000, "validation_bound": -80.0}) + "\n")
    blocks = iwae.show(STUDIES["iwae"], results_in(tmp_path))
    entry = next(b for b in blocks if getattr(b, "caption", "").startswith("Active units")).rows[0][1]
    assert (entry.text, entry.detail) == ("3", "1k updates, averaged parameters")
    (empty,) = [b for b in iwae.show(STUDIES["iwae"], []) if getattr(b, "caption", "").startswith("Active units")]
    assert empty.rows[0][1].text == "not run"


def test_the_paper_keeps_its_own_claims(tmp_path):
    for K, row in table_1.PUBLISHED.items():
        for estimator, value in row.items():
            recorded_run(tmp_path, run_of(estimator, K), likelihood=value)
    verdicts = {c.statement: c.check(results_in(tmp_path)).verdict for c in claims() if c.place == "Table 1"}
    assert set(verdicts.values()) == {"seen"}, verdicts


@pytest.mark.parametrize(("rws", "expected"), [(-100.9, "seen"), (-101.1, "not seen")])
def test_a_claim_that_two_estimators_are_alike(tmp_path, rws, expected):
    for name, bound in (("vimco", -100), ("rws", rws)):
        recorded_run(tmp_path, run_of(name, 10), bound=bound)
    assert verdict("optimize the bound alike (here: within a nat): K = 10", tmp_path) == expected


@pytest.mark.parametrize(("vimco", "expected"), [(-99.9, "seen"), (-100.1, "not seen")])
def test_a_claim_that_one_bound_is_better(tmp_path, vimco, expected):
    for name, bound in (("vimco", vimco), ("rws", -100)):
        recorded_run(tmp_path, run_of(name, 2), bound=bound)
    assert verdict("VIMCO optimizes the bound better than RWS at K = 2", tmp_path) == expected


@pytest.mark.parametrize(
    ("proposal", "K", "bound", "expected"),
    [
        ("learned", 50, -51.0, ["seen", "seen"]),
        ("learned", 50, -55.5, ["not seen", "seen"]),  # ahead by 6.5 at K = 50, and by 8 at 20
        ("learned", 2, -62.5, ["not seen", "seen"]),  # behind at K = 2
        ("prior", 20, -71.0, ["seen", "not seen"]),  # ahead by 7 with the prior, by 8 with a learned proposal
    ],
)
def test_claims_about_learned_proposals(tmp_path, proposal, K, bound, expected):
    """VIMCO leads by 1, 4, 8, 11 with a learned proposal, by 12 and 16 with the prior; then one bound is changed."""
    bounds = {
        ("learned", "vimco"): {2: -61.0, 5: -58.0, 20: -54.0, 50: -51.0},
        ("learned", "nvil"): dict.fromkeys((2, 5, 20, 50), -62.0),
        ("prior", "vimco"): {20: -66.0, 50: -61.0},
        ("prior", "nvil"): {20: -78.0, 50: -77.0},
    }
    bounds[proposal, "vimco"][K] = bound
    for (where, name), of_size in bounds.items():
        for size, value in of_size.items():
            recorded_run(tmp_path, run_of(name, size, task="structured", proposal=where), bound=value)
    assert [
        verdict(part, tmp_path) for part in ("K = 2, 5, 20, 50, by more the larger K", "closer together")
    ] == expected


def test_likelihoods_of_unequal_runs_are_not_held_against_each_other(tmp_path):
    recorded_run(tmp_path, run_of("nvil", 10), likelihood=93.0)
    recorded_run(tmp_path, dataclasses.replace(run_of("nvil", 50), updates=100), likelihood=96.0)
    assert verdict("markedly worse at K = 50", tmp_path) == "not yet"


@pytest.mark.parametrize(("then", "expected"), [(94.5, "seen"), (95.5, "not seen")])
def test_an_extended_run_is_held_against_others_as_it_was_before(tmp_path, then, expected):
    """NVIL (10) has 93 now, but another number after the 200 updates that NVIL (50) has."""
    extended = recorded_run(tmp_path, run_of("nvil", 10), likelihood=93.0)
    short = recorded_run(tmp_path, dataclasses.replace(run_of("nvil", 50), updates=200), likelihood=96.0)
    (evaluation,) = json.loads((short / "summary.json").read_text())["evaluations"]
    summary = json.loads((extended / "summary.json").read_text())
    stage = {"updates": 200, "evaluations": [{**evaluation, "negative_log_likelihood": then}]}
    (extended / "summary.json").write_text(json.dumps({**summary, "stages": [stage]}))
    (claim,) = [claim for claim in claims() if "markedly worse at K = 50" in claim.statement]
    answer = claim.check(results_in(tmp_path))
    assert answer.verdict == expected
    assert answer.evidence == f"NVIL (10): {then:.2f} (200 updates), NVIL (50): 96.00 (200 updates)"
    assert table_of("table-1", tmp_path)["10", "NVIL"].text == "93.00 ± 0.25"
    text = write_report([tmp_path], tmp_path / "report")[0].read_text()
    assert f"{then:.2f} ± 0.25 (test, K = 1000, best weights, after 200 updates)" in text


def test_of_runs_of_one_configuration_the_longest_counts(tmp_path):
    """The best of them would have an advantage. Other rates still compete by validation."""
    config = run_of("vimco", 5)
    recorded_run(tmp_path / "long", config, bound=-99.0, likelihood=91.0)
    recorded_run(tmp_path / "longer", dataclasses.replace(config, updates=2 * UPDATES), bound=-100.0, likelihood=92.0)
    (cell,) = generative("vimco", 5)
    found = number(results_in(tmp_path), cell, 1000)
    assert (found.value, found.updates) == (92.0, 2 * UPDATES)
    recorded_run(tmp_path, run_of("vimco", 5, rate=3e-3), bound=-99.5, likelihood=91.5)
    assert number(results_in(tmp_path), cell, 1000).value == 91.5


def test_a_longer_run_that_was_not_evaluated_hides_no_number(tmp_path):
    config = run_of("vimco", 5)
    recorded_run(tmp_path / "long", config, bound=-99.0, likelihood=91.0)
    recorded_run(tmp_path / "longer", dataclasses.replace(config, updates=2 * UPDATES), bound=-98.0)
    (cell,) = generative("vimco", 5)
    found = number(results_in(tmp_path), cell, 1000)
    assert (found.value, found.updates) == (91.0, UPDATES)


def test_a_shorter_run_of_a_cell_is_held_against_others_of_its_length(tmp_path):
    """NVIL (10) was run twice: the long run is the cell's number, the short one is compared with NVIL (50)."""
    recorded_run(tmp_path / "long", run_of("nvil", 10), likelihood=93.0, bound=-90)
    for K, value in ((10, 94.5), (50, 96.0)):
        recorded_run(tmp_path, dataclasses.replace(run_of("nvil", K), updates=100), likelihood=value, bound=-95)
    assert verdict("markedly worse at K = 50", tmp_path) == "seen"
    assert table_of("table-1", tmp_path)["10", "NVIL"].text == "93.00 ± 0.25"


@pytest.mark.parametrize(("nvil", "expected"), [(3.0, "seen"), (1.1, "not seen")])
def test_a_claim_about_the_learning_signal(tmp_path, nvil, expected):
    recorded_run(tmp_path, run_of("vimco", 10), signal=1.0)
    recorded_run(tmp_path, run_of("nvil", 10), signal=nvil)
    assert verdict("about 3 times smaller", tmp_path) == expected


def test_curves_are_compared_where_all_of_them_have_been(tmp_path):
    """VIMCO is far ahead only because its run is longer; up to the common update it is behind."""
    changes = {"task": "structured", "proposal": "prior"}
    for K in (20, 50):
        recorded_run(tmp_path, dataclasses.replace(run_of("vimco", K, **changes), updates=40_000), bound=-60)
        recorded_run(tmp_path, run_of("nvil", K, **changes), bound=-70)
    assert verdict("VIMCO is ahead of NVIL at K = 20", tmp_path) == "not yet"  # no point of VIMCO's is that early
    for path in tmp_path.glob("*nvil*"):
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        text = "".join(json.dumps({**line, "update": 4 * line["update"]}) + "\n" for line in lines)
        (path / "metrics.jsonl").write_text(text)
    assert verdict("VIMCO is ahead of NVIL at K = 20", tmp_path) == "not seen"


def test_curves_are_read_up_to_their_last_common_update(tmp_path):
    """Both rise alike; the one with more points has a later one before the end."""
    few, many = (recorded_run(tmp_path, dataclasses.replace(run_of(name, 5), updates=400)) for name in ("rws", "vimco"))
    for path, updates in ((few, (200, 400)), (many, (100, 200, 300, 400))):
        lines = [json.dumps({"update": update, "validation_bound": -100 + update / 100}) + "\n" for update in updates]
        (path / "metrics.jsonl").write_text("".join(lines))
    cells = [*generative("rws", 5), *generative("vimco", 5)]
    verdict = by_curves(cells, lambda values: values == [-98.0, -98.0], share=0.8)(results_in(tmp_path))
    assert verdict.verdict == "seen", verdict.evidence


def test_a_claim_takes_the_rate_that_was_best_where_the_curves_are_compared(tmp_path):
    """NVIL is best at 3e-4 in the end, and at 1e-3 after 2000 updates, all that VIMCO has."""
    recorded_run(tmp_path, run_of("vimco", 5), bound=-100.0)
    slow = recorded_run(tmp_path, run_of("nvil", 5, 3e-4, updates=4000), bound=-95.0)
    recorded_run(tmp_path, run_of("nvil", 5, 1e-3, updates=4000), bound=-99.0)
    lines = [json.loads(line) for line in (slow / "metrics.jsonl").read_text().splitlines()]
    late = [{**n, "validation_bound": -95.0 if n["update"] > 2000 else -110.0} for n in lines if n["update"] % 400 == 0]
    (slow / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in late))
    check = by_curves([*generative("vimco", 5), *generative("nvil", 5)], lambda v: v[0] > v[1])
    expected = "VIMCO (5): −100.00, NVIL (5): −101.06 (up to update 2,000, rate 0.001)"  # −99 − 60 (e^(−10/3) − …)
    assert check(results_in(tmp_path)) == Verdict("seen", expected)
    recorded_run(tmp_path, run_of("vimco", 5, updates=4000), name="longer", bound=-100.0)
    assert check(results_in(tmp_path)).evidence == (
        "VIMCO (5): −100.00 at 0.001, NVIL (5): −95.00 at 0.0003 (up to update 4,000)"
    )


def test_a_claim_about_runs_before_their_first_validation_waits(tmp_path):
    """They have logged signals, but no rate can be chosen yet."""
    for name in ("vimco", "nvil"):
        path = recorded_run(tmp_path, run_of(name, 10), is_finished=False) / "metrics.jsonl"
        path.write_text('{"update": 100, "signal_rms": 2.0}\n{"update": 200, "signal_rms": 2.0}\n')
    assert verdict("At K = 10 VIMCO's learning signal", tmp_path) == "not yet"


def test_likelihoods_of_equal_length_are_of_the_rate_that_was_best_then(tmp_path):
    """Rate 1e-3 was behind after 2000 updates, and ahead in the end."""
    path = recorded_run(tmp_path, run_of("rws", 5, 1e-3, updates=4000), bound=-90.0, likelihood=88.0)
    summary = json.loads((path / "summary.json").read_text())
    stage = {"updates": 2000, "evaluations": [{**summary["evaluations"][0], "update": 2000}]}
    (path / "summary.json").write_text(json.dumps({**summary, "stages": [stage]}))
    points = [{"update": 2000, "validation_bound": -120.0}, {"update": 4000, "validation_bound": -90.0}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    recorded_run(tmp_path, run_of("rws", 5, 3e-4), bound=-100.0, likelihood=94.0)
    recorded_run(tmp_path, run_of("vimco", 5), bound=-100.0, likelihood=93.0)
    cells = [*generative("vimco", 5), *generative("rws", 5)]
    numbers, is_fair = numbers_of_equal_length(results_in(tmp_path), cells, 1000)
    assert ([n.value for n in numbers], is_fair) == ([93.0, 94.0], True)


def test_the_paper_has_a_number_for_every_cell_of_its_table():
    numbers = {generative(name, K)[0]: value for K, row in table_1.PUBLISHED.items() for name, value in row.items()}
    assert set(numbers) == set(STUDIES["table-1"].cells)
    assert min(numbers.values()) == numbers[generative("vimco", 50)[0]] == 91.9


@pytest.mark.parametrize(("count", "text"), [(200_000, "200k"), (1_500_000, "1.5M"), (2_025, "2,025"), (40, "40")])
def test_counts_are_shortened_where_nothing_is_lost(count, text):
    assert short_count(count) == text


def test_a_study_of_ones_own_is_one_file(tmp_path, capfd, monkeypatch):
    """The one in the documentation is listed, shown and checked as those of the paper."""
    monkeypatch.setitem(STUDIES, "one-layer", None)  # removed at the end
    del STUDIES["one-layer"]
    monkeypatch.setattr("vimco.plugins._loaded", {})
    text = (Path(__file__).parents[1] / "docs" / "how-to" / "studies.md").read_text()
    (program,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "mine.py"
    file.write_text(program)
    cli.main(["study", "one-layer", "--plugin", str(file), "--dry-run", "--output", str(tmp_path / "new")])
    assert "generative-50-vimco-K10-lr0.003-seed0" in capfd.readouterr().out
    with pytest.raises(UsageError, match="'one-layer' is taken by another study"):
        runpy.run_path(str(file))
    for K, value in ((2, 97.0), (10, 96.0)):
        recorded_run(tmp_path / "runs", run_of("vimco", K, layers=(50,)), likelihood=value)
    cli.main(["study"])
    assert "One layer" in capfd.readouterr().out
    text = write_report([tmp_path / "runs"], tmp_path / "report")[0].read_text()
    assert "| 50 | [97.00 ± 0.25]" in text
    assert "| More samples are better<br><sub>here</sub> | seen |" in text
    assert "none of the studies above" not in text


def test_a_study_is_shown_where_it_was_run(tmp_path):
    """Runs on two data sets: each study is shown for its own, those that were run on none once, and claims once."""
    recorded_run(tmp_path, STUDIES["table-1"].adjusted(updates=1000)[0], likelihood=95.0)
    recorded_run(tmp_path, STUDIES["attention"].adjusted(updates=1000)[0])
    document = report(collected([tmp_path])[0])
    titles = [section.title for section in document.sections]
    assert len(titles) == len(set(titles))
    assert not any("mnist" in title for title in titles)
    sections = {section.anchor: section for section in document.sections}
    assert {"table-1", "attention", "figure-1", "iwae", "claims"} <= sections.keys()
    assert "Not run" not in str(sections["table-1"].blocks[0])
    assert "Not run" in str(sections["iwae"].blocks[0])
