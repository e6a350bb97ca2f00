"""Untrusted files: no link is followed, nothing blocks or grows without limit, no control character is printed."""

import contextlib
import dataclasses
import json
import os
import signal
import tracemalloc

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
        ("num_samples", 2**31),
        ("slice_size", 10**30),
        ("warmup_updates", 2**31),
        ("layers", (2**31,)),
        ("batch_size", 2**40),
    ],
)
def test_integers_beyond_32_bits(field, value):
    with pytest.raises(UsageError, match=rf"--{field.replace('_', '-')} must be at most 2,147,483,647"):
        dataclasses.replace(CONFIG, **{field: value})


@pytest.mark.parametrize(
    "words", ["sample run --rows 60000", "sample run --columns 60000", "evaluate run --num-samples 99999999999"]
)
def test_limits_of_commands(path, capsys, monkeypatch, words):
    monkeypatch.chdir(path.parent)
    status, _, err = program(capsys, *words.split())
    assert status == 2
    assert "at most" in err
