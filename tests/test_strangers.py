"""Untrusted files: no link is followed, nothing blocks or grows without limit, no control character is printed."""

import contextlib
import dataclasses
import json
import os
import signal
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from recorded import recorded_run

from vimco import cli, files
from vimco.data import load_dataset
from vimco.errors import UsageError, printable
from vimco.runs import checkpoints, directory, locks, store
from vimco.runs.config import RunConfig

CONFIG = RunConfig(data="synthetic", layers=(3,), num_samples=2, updates=20)


@contextlib.contextmanager
def within(seconds):
    """Fail after some seconds, since a blocking file would stop the tests for ever."""

    def late(*_):
        raise AssertionError(f"it took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def path(tmp_path):
    return recorded_run(tmp_path, CONFIG, name="run")


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text("{}")
    return file


def test_a_lock_that_is_a_link(path, secret):
    """Opening it for writing would have emptied its target."""
    (path / ".lock").symlink_to(secret)
    with pytest.raises(UsageError, match="cannot be written to"), locks.lock_for_training(path):
        pass
    assert secret.read_text() == "{}"


def test_nothing_is_written_through_a_link(tmp_path, secret):
    link = tmp_path / "metrics.jsonl"
    link.symlink_to(secret)
    with pytest.raises(UsageError, match="could not be written"):
        store.append_metrics(link, {"update": 1})
    (tmp_path / f".metrics.jsonl.{os.getpid()}.part").symlink_to(secret)
    files.write_file(link, b"ours")
    assert (link.read_text(), link.is_symlink(), secret.read_text()) == ("ours", False, "{}")


READERS = {
    directory.CONFIG: directory.load,
    directory.SUMMARY: lambda path: directory.load(path).summary(),
    directory.METRICS: lambda path: directory.load(path).metrics(),
    directory.BEST["best"]: lambda path: directory.load(path).model(),
    checkpoints.CHECKPOINT: lambda path: directory.load(path).model("latest"),
}


def fifo(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def folder(path):
    path.mkdir()


def link_to_a_file(path):
    target = path.with_name("target")
    target.write_text("{}")
    path.symlink_to(target)


def huge(path):
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", [fifo, device, folder, link_to_a_file, huge])
def test_only_regular_files_of_a_limited_size_are_read(path, name, make):
    (path / name).unlink(missing_ok=True)
    make(path / name)
    with (
        within(20),
        pytest.raises(UsageError, match=r"regular|symbolic links|larger than"),
    ):
        READERS[name](path)


@pytest.mark.parametrize("make", [fifo, device, folder, huge])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_data_are_regular_files_of_a_limited_size(tmp_path, make, suffix):
    make(tmp_path / f"data{suffix}")
    with within(20), pytest.raises(UsageError, match=f"data{suffix} cannot be read"):
        load_dataset(str(tmp_path / f"data{suffix}"))


def test_only_the_wanted_members_of_an_archive_are_expanded(tmp_path):
    bars = load_dataset("synthetic")
    unused = np.zeros(2**26, np.uint8)  # 65 KB when compressed
    np.savez_compressed(tmp_path / "bars.npz", **bars.splits, unused=unused)
    del unused
    tracemalloc.start()
    try:
        loaded = load_dataset(str(tmp_path / "bars.npz"))
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    assert loaded.checksum == bars.checksum


def test_an_archive_that_expands_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("vimco.data.arrays.LARGEST_FILE", 2**16)
    np.savez_compressed(tmp_path / "data.npz", np.zeros(2**20, np.uint8))
    with pytest.raises(UsageError, match=r"expands to more than 65,536 bytes"):
        load_dataset(str(tmp_path / "data.npz"))


def test_control_characters_are_shown():
    assert printable("a\x1b[2Jb\x07\r\x9b\u202e\udcff") == "a\\x1b[2Jb\\x07\\r\\x9b\\u202e\\udcff"
    assert printable("Rényi: f̂ − σ\n\t日本", "\n\t") == "Rényi: f̂ − σ\n\t日本"


def program(capsys, *arguments):
    with pytest.raises(SystemExit) as leaving:
        cli.main(list(arguments))
    return leaving.value.code, *capsys.readouterr()


@pytest.mark.parametrize("name", ["evil\x1b]0;mine\x07\x1b[2J", "rep[/x]", "not\udcff utf-8", "turned\u202egnp"])
def test_names_reach_the_terminal_as_text(tmp_path, capsys, name):
    path = recorded_run(tmp_path, CONFIG, name=name)
    status, out, err = program(capsys, "evaluate", str(path))
    assert status == 2
    assert printable(name) in err
    assert not set(out + err) & {"\x1b", "\x07", "\u202e", "\udcff"}


def test_configurations_reach_the_terminal_as_text(path, capsys):
    record = json.loads((path / directory.CONFIG).read_text())
    record["config"]["data"] = "\x1b[2Jnothing[/x]"
    (path / directory.CONFIG).write_text(json.dumps(record))
    status, out, err = program(capsys, "resume", str(path))
    assert status == 2
    assert "\\x1b[2Jnothing[/x]" in err
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slice_size", 10**30),
        ("updates", 2**31),
        ("warmup_updates", 2**31),
        ("layers", (2**31,)),
        ("batch_size", 2**40),
    ],
)
def test_integers_beyond_32_bits(field, value):
    with pytest.raises(UsageError, match=rf"--{field.replace('_', '-')} must be at most 2,147,483,647"):
        dataclasses.replace(CONFIG, **{field: value})


def test_epochs_beyond_32_bits():
    with pytest.raises(UsageError, match=r"at most 2,147,483,647 updates; 2.5e\+301 were asked for"):
        RunConfig(epochs=1e300).total_updates(25)


def test_a_reader_reserves_no_more_than_the_file(tmp_path):
    """It reserved the limit, 8 GB for weights, which small machines refuse."""
    (tmp_path / "small").write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert len(files.read_file(tmp_path / "small", 2**33)) == 1000
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    with pytest.raises(OSError, match="larger than 999 bytes"):
        files.read_file(tmp_path / "small", 999)
    assert files.read_file(Path("/proc/self/status"), 2**20)  # reports a size of 0
    with pytest.raises(OSError, match="larger than 9 bytes"):
        files.read_file(Path("/proc/self/status"), 9)


@pytest.mark.parametrize("changes", [{"num_samples": 2**31}, {"num_samples": 2**20 + 1}, {"layers": (1,) * 101}])
def test_what_could_not_be_compiled(changes):
    """Sums and layers are unrolled: 200 million samples were traced for ever."""
    with pytest.raises(UsageError, match="at most 1,048,576 samples and 100 layers"):
        dataclasses.replace(CONFIG, **changes)


@pytest.mark.parametrize(
    ("field", "name", "option"),
    [
        ("task", "attention", "grid=2147483648"),
        ("task", "attention", "glimpses=99999999999999999999"),
        ("task", "attention", "units=2147483648"),
        ("estimator", "tvo-log-spaced", "points=1001"),
        ("estimator", "tvo", "partition=" + ",".join(f"{i / 2000}" for i in range(1001))),
        ("estimator", "vimco-subsets", "repeats=1000000000"),
        ("estimator", "annealed", "updates=2147483648"),
    ],
)
def test_options_have_limits(field, name, option):
    with pytest.raises(UsageError, match=f"option '{option.partition('=')[0]}' of {field} {name} goes up to "):
        RunConfig(**{field: name, f"{field}_options": (option,)})


def test_numbers_in_a_list_have_limits():
    with pytest.raises(UsageError, match="The numbers of the option 'hidden' of task gaussian go up to 2,147,483,647"):
        RunConfig(task="gaussian", layers=(4,), task_options=("hidden=20,10000000000000000000",))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux to count descriptors")
def test_a_folder_in_the_place_of_a_file_costs_no_descriptor(tmp_path):
    """A thousand such runs used up all of them, and the good runs after them could not be read."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(OSError, match="not a regular file"):
            files.read_file(tmp_path, 100)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("layers", ["2147483647 2147483647 2147483647", "50000 50000"])
def test_a_model_whose_checkpoint_could_not_be_read(tmp_path, capsys, layers):
    """The first one ended the process within the compiler."""
    words = ["train", "--data", "synthetic", "--output", str(tmp_path / "run"), "--layers", *layers.split()]
    status, _, err = program(capsys, *words)
    assert status == 2
    assert "a checkpoint has at most 8,589,934,592: choose a smaller model" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        "sample run --rows 60000",
        "sample run --columns 60000",
        "evaluate run --num-samples 99999999999",
        "evaluate run --devices 99999999999",
        "study table-1 --data synthetic --updates 99999999999",
    ],
)
def test_limits_of_commands(path, capsys, monkeypatch, words):
    monkeypatch.chdir(path.parent)
    status, _, err = program(capsys, *words.split())
    assert status == 2
    assert "at most" in err
    assert len(err) < 400


@pytest.mark.parametrize(
    "words", [["train", "--data", "~nobody-here/x.npy"], ["train", "--plugin", "~nobody-here/x.py"]]
)
def test_the_home_of_somebody_who_is_not_there(capsys, words):
    status, _, err = program(capsys, *words)
    assert status == 2
    assert f"{words[-1]} cannot be found" in err


@pytest.mark.parametrize("words", [["\x1b[2J"], ["train", "--layers", "\x1b[2J"], ["train", "--\x1b[2J\udcff"]])
def test_words_that_the_parser_does_not_know_reach_the_terminal_as_text(capsys, words):
    """A pattern such as * puts names of files on the command line."""
    status, out, err = program(capsys, *words)
    assert status == 2
    assert "\\x1b[2J" in out + err
    assert not set(out + err) & {"\x1b", "\udcff"}


def test_another_shape_than_that_of_the_data(path):
    """Pictures would be drawn wrongly."""
    record = json.loads((path / directory.CONFIG).read_text())
    record["data"] |= {"image_shape": [16, 4], "checksum": load_dataset("synthetic").checksum}
    (path / directory.CONFIG).write_text(json.dumps(record))
    with pytest.raises(UsageError, match=r"its images have 16 x 4 pixels, and those of synthetic have 8 x 8"):
        directory.load(path).dataset()


def test_a_part_of_an_evaluation_with_another_content_is_none(path):
    run = directory.load(path)
    right = np.zeros(5, np.float32)
    store.write_tree(path / directory.BEST["best"], {"a": right}, {**run.facts, "update": 20})
    part = run._part(2, "best", (1, 1))
    for bound in (np.float32(0), np.zeros((5, 1), np.float32), np.zeros(4, np.float32), np.zeros(5, np.int32)):
        store.write_tree(
            part, {"bound": bound, "variance": right, "effective_sample_size": right}, {**run.facts, "update": 20}
        )
        assert run.evaluated_part(2, "best", (1, 1)) is None
        assert not run.join_parts(2, "best", 1)


def test_the_memory_that_metrics_need_has_a_limit(tmp_path, monkeypatch):
    """At most twenty times the size of the file, and only so many lines."""
    file = tmp_path / "metrics.jsonl"
    names = ",".join(f'"{chr(97 + i)}":{i}' for i in range(20))
    for content in ('{"update":1}\n' * 6_000, f'{{"update":1,{names}}}\n' * 600):
        file.write_text(content)
        tracemalloc.start()
        try:
            store.read_metrics(file)
            assert tracemalloc.get_traced_memory()[1] < 20 * len(content)
        finally:
            tracemalloc.stop()
    monkeypatch.setattr(store, "MOST_LINES", 599)
    with pytest.raises(UsageError, match="more than 599 lines"):
        store.read_metrics(file)
