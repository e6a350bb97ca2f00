"""The study of estimators: its cells, and its tables for runs of different speed and length."""

import dataclasses
import json

from recorded import recorded_run

import vimco
from vimco.studies import STUDIES
from vimco.studies.document import Picture, Table
from vimco.studies.paper.which_estimator import METHODS, SETTINGS, cells_of
from vimco.studies.results import collected
from vimco.studies.runner.tasks import Measuring, planned

STUDY = STUDIES["estimators"]


def test_cells():
    assert len(STUDY.cells) == 5 * len(METHODS) + 6
    assert {cell.estimator for cell in cells_of("bottom half, prior, K = 20").values()} == {
        *("vimco", "vimco-arithmetic", "ovis", "rloo", "tvo-log-spaced", "renyi-warmup")
    }
    assert len(STUDY.runs()) == 3 * len(STUDY.cells)


def recorded(folder, title, **options):
    """Return a run of whole images at K = 5 with rate 1e-3."""
    cell = cells_of("generative, K = 5")[title]
    run = next(run for run in STUDY.runs() if cell == type(cell).of(run) and run.learning_rate == 1e-3)
    return recorded_run(folder, dataclasses.replace(run, updates=options.pop("updates", 1000)), **options)


def test_tables_compare_after_equal_updates_and_equal_time(tmp_path):
    """OVIS is slower here by a factor of 1.6: when VIMCO is done, it has done 625 of 1000 updates.

    VIMCO's run was stopped once, so that it compiled twice. That does not count.
    """
    stopped = recorded(tmp_path, "VIMCO", bound=-100.0) / "metrics.jsonl"
    lines = [json.loads(line) for line in stopped.read_text().splitlines()]
    for line in lines:
        line["processor_seconds"] += 50 if line["update"] <= 500 else 90
    stopped.write_text("".join(json.dumps(line) + "\n" for line in lines))
    slow = recorded(tmp_path, "OVIS, S = 5", bound=-99.0) / "metrics.jsonl"
    lines = [json.loads(line) for line in slow.read_text().splitlines()]
    slow.write_text(
        "".join(
            json.dumps({**line, "processor_seconds": 1.6 * line["seconds"], "seconds": 9e9}) + "\n" for line in lines
        )
    )
    runs, problems = collected([tmp_path])
    assert not problems
    table, picture = (next(b for b in STUDY.show(STUDY, runs) if isinstance(b, kind)) for kind in (Table, Picture))
    assert table.headings == ("generative, K = 5", "after 1k updates", "after 100 seconds", "ms an update")
    rows = {row[0].text: [entry.text for entry in row[1:]] for row in table.rows}
    assert list(rows) == ["VIMCO", "OVIS, S = 5"]
    assert rows["VIMCO"] == ["−100.00", "−100.00", "100.00"]
    validated = {line["update"]: line["validation_bound"] for line in lines if "validation_bound" in line}
    before, after = (f(u for u in validated if side * u <= side * 625) for f, side in ((max, 1), (min, -1)))
    share = (625 - before) / (after - before)
    expected = (1 - share) * validated[before] + share * validated[after]
    assert rows["OVIS, S = 5"] == ["−99.00", f"−{-expected:.2f}", "160.00"]
    assert "VIMCO 0.00 at update 1,000, OVIS, S = 5 1.00 at update 1,000" in picture.alternative


def test_runs_of_other_lengths_are_compared_at_the_last_common_validation(tmp_path):
    recorded(tmp_path, "VIMCO", bound=-100.0)
    recorded(tmp_path, "RLOO (ELBO)", bound=-98.0, updates=2000)
    table = next(b for b in STUDY.show(STUDY, collected([tmp_path])[0]) if isinstance(b, Table))
    assert table.headings[1] == "after 1k updates"
    assert len(SETTINGS) == 6


def test_a_longer_run_of_one_method_is_not_compared(tmp_path):
    """Three methods have 1000 updates; VIMCO's run of 3000 is left out, though its bound is better."""
    for title in ("VIMCO", "RWS", "f̂ = 0"):
        recorded(tmp_path / "short", title, bound=-100.0)
    recorded(tmp_path / "long", "VIMCO", bound=-90.0, updates=3000)
    table = next(b for b in STUDY.show(STUDY, collected([tmp_path])[0]) if isinstance(b, Table))
    assert table.headings[1] == "after 1k updates"
    assert [row[1].text for row in table.rows] == ["−100.00"] * 3


def test_a_method_has_the_rate_that_was_best_at_the_common_length(tmp_path):
    """VIMCO's best rate was extended; a worse one has the common length."""
    for title in ("RWS", "f̂ = 0"):
        recorded(tmp_path, title, bound=-100.0)
    longer = recorded(tmp_path, "VIMCO", bound=-98.0, updates=2000)
    config = vimco.load(longer).config
    recorded_run(tmp_path, dataclasses.replace(config, updates=1000, learning_rate=3e-3), bound=-105.0)
    table = next(b for b in STUDY.show(STUDY, collected([tmp_path])[0]) if isinstance(b, Table))
    rows = {row[0].text: (row[0].detail, row[1].text) for row in table.rows}
    assert rows["VIMCO"] == ("rate 0.001", "−100.06")  # −98 − 60 (e^(−10/3) − e^(−20/3)) after half of its updates


def test_without_the_processors_time_equal_time_is_left_out(tmp_path):
    """A run of an earlier version has the clock's time alone, which other work on the machine lengthens."""
    recorded(tmp_path, "VIMCO", bound=-100.0)
    old = recorded(tmp_path, "RWS", bound=-99.0) / "metrics.jsonl"
    lines = [json.loads(line) for line in old.read_text().splitlines()]
    old.write_text("".join(json.dumps({k: v for k, v in n.items() if k != "processor_seconds"}) + "\n" for n in lines))
    table = next(b for b in STUDY.show(STUDY, collected([tmp_path])[0]) if isinstance(b, Table))
    assert table.headings == ("generative, K = 5", "after 1k updates")
    assert [row[1].text for row in table.rows] == ["−100.00", "−99.00"]


def record_of_noise(name, weights, variance, num_samples=5, draws=200):
    """Return what `vimco noise` records after update 1000."""
    facts = {"estimator": name, "num_samples": num_samples, "draws": draws, "weights": weights}
    parts = ("model", "proposal")
    numbers = {f"{part}_{what}": value for part in parts for what, value in (("variance", variance), ("snr", 1.0))}
    return {**facts, "update": 1000, "bound": -95.0, **numbers}


def test_a_measurement_by_hand_does_not_take_the_place_of_the_studys(tmp_path):
    """With averaged parameters, or another K, it is not what the study measures and shows."""
    (config,) = STUDY.adjusted(updates=1000, rates=[1e-3], only=["generative-200-200-200-vimco-K5"])
    (training,) = planned([config], tmp_path)
    summary = recorded_run(tmp_path / "runs", config) / "summary.json"
    before = json.loads(summary.read_text())
    task = Measuring(training, ("naive", "vimco"))
    for weights, num_samples, is_due in (("best-average", 5, True), ("latest", 20, True), ("latest", 5, False)):
        noise = [record_of_noise(name, weights, 1.0, num_samples) for name in task.estimators]
        summary.write_text(json.dumps({**before, "noise": noise}))
        assert task.is_due() == is_due
        blocks = STUDY.show(STUDY, collected([tmp_path])[0])
        shown = [b for b in blocks if isinstance(b, Table) and b.caption.startswith("Signal-to-noise")]
        assert len(shown) == (not is_due)


def test_noise_is_compared_at_the_same_parameters(tmp_path):
    """A measurement at averaged parameters of the same update is another one; so is one with other draws."""
    config = vimco.RunConfig(data="binarized-mnist", num_samples=5, updates=1000, averaging=0.999)
    path = recorded_run(tmp_path, config)
    measured = [("vimco", "latest", 10.0), ("naive", "latest", 1000.0), ("vimco", "best-average", 1.0)]
    noise = [*(record_of_noise(*each) for each in measured), record_of_noise("rloo", "latest", 70.0, draws=2)]
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps({**summary, "noise": noise}))
    tables = [block for block in STUDY.show(STUDY, collected([tmp_path])[0]) if isinstance(block, Table)]
    (table,) = [table for table in tables if table.caption.startswith("Signal-to-noise")]
    assert {entry.detail for row in table.rows for entry in row[1:]} == {"variance × 1", "variance × 100"}
