"""The noise of gradients at the parameters of a run: numbers, records, refusals, and as a part of a study."""

import dataclasses
import json

import jax.numpy as jnp
import pytest
from recorded import recorded_run

import vimco
from vimco.cli import main
from vimco.runs import directory, noise
from vimco.runs.config import RunConfig
from vimco.runs.experiment import Experiment, Purpose, key_for
from vimco.runs.noise import noise_records
from vimco.studies import STUDIES
from vimco.studies.cells import Cell
from vimco.studies.document import Table
from vimco.studies.paper import which_estimator
from vimco.studies.results import collected
from vimco.studies.runner.engine import Ending
from vimco.studies.runner.execution import Watch, run_study
from vimco.studies.runner.tasks import Training

CONFIG = RunConfig(data="synthetic", layers=(4, 3), num_samples=3, updates=30, log_every=10, validate_every=10)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return vimco.train(CONFIG, tmp_path_factory.mktemp("noise") / "run")


def noise_of(run, *estimators, **options):
    return list(noise_records(run, estimators, **{"draws": 20, "weights": "best", **options}))


def test_records_are_the_statistics_of_the_gradient(run):
    """The squared ratio of n draws is too large by 1/n; proposal and model make up the whole."""
    record = noise_of(run, "vimco")[0]
    examples = Experiment(run.config, run.dataset()).examples("train")
    batch = examples.batch(jnp.arange(24), jnp.result_type(float))
    key = key_for(Purpose.NOISE, 0)
    statistics = vimco.gradient_statistics(run.model(), vimco.VIMCO(), key, batch, 3, 20)
    assert record["bound"] == pytest.approx(float(statistics.bound))
    assert record["update"] == run.update_of("best")
    assert record["model_variance"] + record["proposal_variance"] == pytest.approx(float(statistics.total_variance))
    of_proposal = statistics.of(lambda model: model.proposal)
    assert record["proposal_snr"] ** 2 == pytest.approx(
        float(of_proposal.total_signal_to_noise) ** 2 - 1 / 20, rel=1e-4
    )
    assert record["model_snr"] > 0


def test_options_and_another_number_of_samples(run):
    plain, centred = noise_of(run, "rws", "rws,centred=true", num_samples=2)
    assert plain["model_variance"] == pytest.approx(centred["model_variance"], rel=1e-4)
    assert centred["proposal_variance"] < plain["proposal_variance"]
    assert plain["num_samples"] == 2


@pytest.mark.parametrize(
    ("name", "K", "message"),
    [
        ("nvil", 3, "nvil has state of its own"),
        ("vimco", 1, "it needs K >= 2"),
        ("nothing", 3, "There is no estimator 'nothing'"),
        ("rws,centered=true", 3, "has no option 'centered'"),
        ("tang", 3, "prior"),
    ],
)
def test_a_named_estimator_that_cannot_be_measured_is_refused(run, name, K, message):
    with pytest.raises(vimco.UsageError, match=message):
        noise_of(run, name, num_samples=K)


def test_by_default_all_are_measured_that_fit_and_have_no_state(run):
    batch = Experiment(run.config, run.dataset()).examples("train").batch(jnp.arange(24), jnp.result_type(float))
    names = {name for name, _ in noise._measurable((), run.model(), batch, 3)}
    assert {"naive", "vimco", "rws", "ovis", "rloo", "bbvi", "local-expectations"} <= names
    assert not names & {"nvil", "muprop", "renyi-warmup", "tang", "pathwise", "ram"}


def test_the_command_prints_and_keeps_the_numbers(run, capfd):
    main(["noise", str(run.path), "--draws", "2", "--json", "--estimators", "vimco", "naive"])
    records = json.loads(capfd.readouterr().out)
    assert [record["estimator"] for record in records] == ["vimco", "naive"]
    kept = directory.load(run.path).noise
    assert sorted(kept, key=str) == sorted(records, key=str)
    main(["noise", str(run.path), "--draws", "3", "--estimators", "vimco"])
    text = capfd.readouterr().out
    assert "K = 3" in text
    assert "proposal's signal to noise" in text
    kept = directory.load(run.path).noise
    assert len(kept) == len(records)  # one is replaced
    assert [record["draws"] for record in kept if record["estimator"] == "vimco"] == [3]


@pytest.mark.parametrize("option", ["--draws 1", "--num-samples 0", f"--num-samples {2**40}"])
def test_bad_numbers_are_refused(run, option, capfd):
    with pytest.raises(SystemExit) as exit_information:
        main(["noise", str(run.path), *option.split()])
    assert exit_information.value.code == 2
    assert option.split()[0] in capfd.readouterr().err


def test_a_summary_with_odd_noise_is_damaged(run, tmp_path):
    copy = dataclasses.replace(run, path=tmp_path)
    (tmp_path / "summary.json").write_text('{"noise": [{"estimator": 3}]}')
    with pytest.raises(vimco.UsageError, match="'noise' is not what a run writes"):
        _ = copy.noise


class InThisProcess:
    """An engine whose jobs are done when they are started."""

    number = 1

    def __init__(self):
        self.started = []

    def start(self, arguments):
        self.started.append(arguments[0])
        main(list(arguments))
        return self

    def ending(self):
        return Ending()


def test_a_study_measures_at_three_moments_of_a_training(tmp_path, capfd):
    training = Training(dataclasses.replace(CONFIG, updates=100), tmp_path / "run")
    other = Training(dataclasses.replace(CONFIG, updates=2, estimator="naive"), tmp_path / "other")
    names = ("vimco", "rws")

    def estimators(cell):
        return names if cell.estimator == "vimco" else ()

    engine = InThisProcess()
    outcome = run_study([training, other], None, engine, Watch(), estimators)
    assert (outcome.failures, outcome.signal_number) == ([], None)
    assert engine.started == ["train", "noise"] * 3 + ["train"]
    run = training.run()
    assert run.updates == 100
    assert {record["estimator"] for record in run.noise} == set(names)
    assert sorted({record["update"] for record in run.noise}) == [2, 20, 100]
    assert other.run().noise == []

    again = InThisProcess()
    run_study([training, other], None, again, Watch(), estimators)
    assert again.started == []


def test_the_tables_show_ratios_and_variances(tmp_path):
    """VIMCO's run has records of two moments; an estimator that was measured at one of them has a dash at the other."""
    cell = which_estimator.cells_of("generative, K = 5")["VIMCO"]
    assert which_estimator.measured(cell)[:2] == ("naive", "vimco")
    assert which_estimator.measured(cell._replace(estimator="rws")) == ()
    assert "rws" not in which_estimator.measured(Cell("structured", "prior", (200, 200), "vimco", 20))
    config = next(run for run in which_estimator.runs() if Cell.of(run) == cell and run.learning_rate == 1e-3)
    path = recorded_run(tmp_path, dataclasses.replace(config, updates=1000))
    run = directory.load(path)
    common = {"num_samples": 5, "draws": 200, "weights": "latest", "bound": -100.0, "effective_sample_size": 2.0}

    def record(name, update, variance, ratio):
        values = {"variance": variance, "snr": ratio}
        numbers = {f"{part}_{what}": v for part in ("model", "proposal") for what, v in values.items()}
        return {"estimator": name, "update": update, **common, **numbers}

    run.record_noise(
        [record("vimco", 20, 4.0, 0.5), record("vimco", 1000, 2.0, 0.25), record("naive", 20, 400.0, 0.05)]
    )
    study = STUDIES["estimators"]
    tables = [block for block in study.show(study, collected([tmp_path])[0]) if isinstance(block, Table)]
    assert len(tables) == 1
    assert tables[0].headings == (
        "generative, K = 5",
        *(f"{part}, after {when}" for when in ("20", "1k") for part in ("proposal", "model")),
    )
    rows = {row[0].text: [(entry.text, entry.detail) for entry in row[1:]] for row in tables[0].rows}
    assert rows["VIMCO"] == [("0.500", "variance × 1")] * 2 + [("0.250", "variance × 1")] * 2
    assert rows["naive"] == [("0.050", "variance × 100")] * 2 + [("–", "")] * 2
