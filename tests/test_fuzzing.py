"""Everything that reads files, on arbitrary content: the outcome is a result or a `UsageError`, within 20 seconds and
256 MB.

Files start as the program writes them; then bytes are changed, removed or inserted, or fields of JSON get other values.
"""

import contextlib
import hashlib
import io
import json
import re
import resource
import struct
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import recorded_run
from scipy.io import savemat
from test_strangers import CONFIG, within

from vimco import cli
from vimco.data import load_dataset
from vimco.data.binarized_mnist import images_of_amat
from vimco.data.caltech_silhouettes import images_of_silhouettes
from vimco.data.packed import Identity, read_packed, write_packed
from vimco.data.published import PublishedFile, PublishedSet, read_published
from vimco.errors import UsageError, printable
from vimco.report import write_report
from vimco.runs import checkpoints, directory, store
from vimco.runs.checkpoints import Progress

FUZZ = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["\x1b[2J", "\udcff", "../..", "$x^$", "<img src=x>", "|", 10**400, "mnist", "synthetic"]),
)
VALUES = ATOMS | st.lists(ATOMS, max_size=3) | st.dictionaries(st.text(max_size=5), ATOMS, max_size=3)
NUMBERS = st.integers(0, 2**16)


@st.composite
def damaged(draw, content):
    """Return a file's content with a few pieces changed, removed or inserted."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place, length = draw(NUMBERS) % (len(content) + 1), draw(st.integers(0, 9))
        content[place : place + length] = draw(st.binary(max_size=9))
    if draw(st.booleans()):
        content = content[: draw(NUMBERS) % (len(content) + 1)]
    return bytes(content)


@st.composite
def altered(draw, record):
    """Return a JSON record with one value, at any depth, changed or removed."""
    record = json.loads(json.dumps(record))
    node = record
    while True:
        key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if isinstance(node[key], dict | list) and node[key] and draw(st.booleans()):
            node = node[key]
            continue
        if draw(st.booleans()):
            node[key] = draw(VALUES)
        else:
            del node[key]
        return record


def read_everything(path):
    """Read everything of a run that a report, an evaluation and a study use, except its weights."""
    run = directory.load(path)
    _ = run.metrics(), run.summary(), run.updates, run.is_finished, run.evaluations, run.stages, run.problems
    _ = run.best(), run.best("best-average"), run.evaluation(1000), directory.differences(run)


def survives(read, *arguments):
    try:
        with within(20), within_memory():
            return read(*arguments)
    except UsageError:
        pass
    except jaxtyping.TypeCheckError as error:  # the tests check types before the configuration does
        if "RunConfig.__init__" not in str(error):
            raise


@contextlib.contextmanager
def within_memory():
    """Take at most 256 MB; what is reserved and never written does not count.

    Where the system cannot forget the largest amount so far, it is at most 256 MB more than that.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = most_memory()
    yield
    assert most_memory() - before < 2**28


def most_memory():
    """Return the largest amount of memory that this process has had, in bytes."""
    with contextlib.suppress(OSError, AttributeError):
        status = Path("/proc/self/status").read_text()
        return 1024 * int(re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE).group(1))
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_memory_is_seen():
    with pytest.raises(AssertionError), within_memory():
        np.ones(2**29, np.uint8).sum()
    with within_memory():
        np.ones(2**20, np.uint8).sum()


@st.composite
def header_damaged(draw, content):
    """Draw a file's content with other bytes at the beginning of its first element, where types and sizes stand."""
    place = 124 + draw(NUMBERS) % 120
    return content[:place] + draw(st.binary(min_size=1, max_size=8)) + content[place + 8 :]


@pytest.fixture
def path(tmp_path):
    return recorded_run(tmp_path, CONFIG, name="run", likelihood=90.0, average=80.0)


@pytest.mark.parametrize("name", [directory.CONFIG, directory.SUMMARY, directory.METRICS])
@FUZZ
@given(data=st.data())
def test_records_with_other_bytes(path, name, data):
    original = (path / name).read_bytes()
    try:
        (path / name).write_bytes(data.draw(damaged(original)))
        survives(read_everything, path)
    finally:
        (path / name).write_bytes(original)


@pytest.mark.parametrize("name", [directory.CONFIG, directory.SUMMARY])
@FUZZ
@given(data=st.data())
def test_records_with_other_values(path, name, data):
    original = (path / name).read_text()
    try:
        (path / name).write_text(json.dumps(data.draw(altered(json.loads(original)))))
        survives(read_everything, path)
    finally:
        (path / name).write_text(original)


@FUZZ
@given(
    line=st.one_of(VALUES, st.fixed_dictionaries({"update": ATOMS, "train_bound": ATOMS, "validation_bound": ATOMS}))
)
def test_lines_of_metrics_with_other_values(path, line):
    with (path / directory.METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")
    survives(read_everything, path)


@settings(FUZZ, max_examples=4)
@given(data=st.data())
def test_a_report_of_a_bad_run_and_a_good_one(path, tmp_path_factory, data):
    """It always includes the good one."""
    folder = tmp_path_factory.mktemp("bad")
    name = data.draw(st.sampled_from(["bad", "$x^$", "a|b", "<b>", "x\x1b[2J", "not\udcff"]))
    bad = recorded_run(folder, CONFIG, name=name, likelihood=90.0)
    file = bad / data.draw(st.sampled_from([directory.CONFIG, directory.SUMMARY, directory.METRICS, "samples.png"]))
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    text, page, _ = write_report([folder, path], folder / "report", None)
    assert "run" in text.read_text()
    assert "<img src=x>" not in page.read_text()


@pytest.fixture
def tree(tmp_path):
    arrays = {"model.a": np.arange(6.0, dtype=np.float32), "model.b": np.zeros((2, 2))}
    checkpoints.write_checkpoint(tmp_path, arrays, 7, Progress(), checkpoints.facts_of_run(CONFIG, "0" * 64))
    return tmp_path / checkpoints.CHECKPOINT


@FUZZ
@given(data=st.data())
def test_weights_with_other_bytes(tree, data):
    original = tree.read_bytes()
    try:
        tree.write_bytes(data.draw(damaged(original)))
        survives(store.read_arrays, tree)
        survives(store.read_facts, tree)
        survives(checkpoints.latest_update, tree.parent)
        survives(checkpoints.latest_checkpoint, tree.parent)
    finally:
        tree.write_bytes(original)


@FUZZ
@given(data=st.data())
def test_weights_with_other_headers(tree, data):
    """Headers are JSON; the rest may be anything, and the checksum of the facts is right."""
    original = tree.read_bytes()
    size = int.from_bytes(original[:8], "little")
    header = json.dumps(data.draw(altered(json.loads(original[8 : 8 + size])))).encode()
    try:
        tree.write_bytes(len(header).to_bytes(8, "little") + header + original[8 + size :])
        survives(checkpoints.latest_checkpoint, tree.parent)
        survives(checkpoints.latest_update, tree.parent)
    finally:
        tree.write_bytes(original)


@FUZZ
@given(data=st.data())
def test_facts_with_other_values(tree, data):
    arrays, facts = store.read_arrays(tree)
    original = tree.read_bytes()
    try:
        store.write_tree(tree, arrays, data.draw(altered(facts)))
        survives(checkpoints.latest_checkpoint, tree.parent)
    finally:
        tree.write_bytes(original)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@FUZZ
@given(data=st.data())
def test_arrays_with_other_bytes(tmp_path, suffix, data):
    file = tmp_path / f"data{suffix}"
    images = np.arange(14 * 4).reshape(14, 4) % 2
    np.save(file, images) if suffix == ".npy" else np.savez_compressed(file, images)
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    survives(load_dataset, str(file))


@FUZZ
@given(data=st.data())
def test_packed_images_with_other_bytes(tmp_path, data):
    bars = load_dataset("synthetic")
    sizes = tuple(map(len, bars.splits.values()))
    identity = Identity("bars", "", sizes, bars.image_shape, bars.checksum)
    if not (tmp_path / "original").exists():
        write_packed(tmp_path / "original", bars)
    (tmp_path / "file").write_bytes(data.draw(damaged((tmp_path / "original").read_bytes())))
    survives(read_packed, tmp_path / "file", identity)


@FUZZ
@given(contents=st.lists(st.just(b"0 1 1 0\n" * 3) | damaged(b"0 1 1 0\n" * 3), min_size=1, max_size=3))
def test_published_text_with_other_bytes(contents):
    """Checksums keep such files away from the readers of formats, which withstand them all the same."""
    images = survives(images_of_amat, contents)
    assert images is None or images.max() <= 1


def matlab_file():
    file, images = io.BytesIO(), np.zeros((1, 784), np.uint8)
    savemat(file, dict.fromkeys(("train_data", "val_data", "test_data"), images))
    return file.getvalue()


@FUZZ
@given(data=st.data())
def test_matlab_files_with_other_bytes(tmp_path, data):
    """Checksums keep them from the reader: that of SciPy, in C, may end the process by a fault of memory."""
    content = matlab_file()
    other = data.draw(damaged(content) | header_damaged(content))
    file = PublishedFile("images.mat", len(content), hashlib.sha256(content).hexdigest())
    read = []
    published = PublishedSet(Identity("images", "", (1, 1, 1), (28, 28), None), (file,), (), lambda c: read.extend(c))
    (tmp_path / "images.mat").write_bytes(other)
    if other != content:
        with pytest.raises(UsageError, match=r"it is truncated or another one|its SHA-256 differs"):
            read_published(published, tmp_path)
        assert read == []


@pytest.mark.parametrize("size", [2**31 - 8, 2**32 - 8])
def test_matlab_files_that_claim_to_be_larger(size):
    content = bytearray(matlab_file())
    place = content.index(b"train_data") + len(b"train_data") + 6  # of the element with the pixels: type, then size
    assert content[place : place + 8] == struct.pack("<II", 2, 784)
    content[place + 4 : place + 8] = struct.pack("<I", size)
    with within_memory(), pytest.raises(UsageError, match="MATLAB file is damaged"):
        images_of_silhouettes([bytes(content)])


@FUZZ
@given(content=st.one_of(st.binary(max_size=60), damaged("A remark.\n\nAnother − one.".encode())))
def test_remarks(path, tmp_path, content):
    from vimco.report.assembly import _paragraphs

    (tmp_path / "remarks").write_bytes(content)
    survives(_paragraphs, tmp_path / "remarks")


OPTIONS = ["--num-samples", "--layers", "--estimator", "--data", "--seed", "--updates", "--warmup-updates", "--minutes"]
COMMANDS = [
    "train",
    "resume",
    "evaluate",
    "sample",
    "study",
    "report",
    "data",
    "page",
    "noise",
    "estimators",
    "",
    "--version",
]


@settings(FUZZ, max_examples=12)
@given(
    command=st.sampled_from(COMMANDS),
    words=st.lists(
        st.one_of(
            st.sampled_from([*OPTIONS, "~nobody/x.npy", "--\x1b[2J", "not\udcff"]),
            st.text(max_size=6),
            st.integers(-(2**70), 2**70).map(str),
        ),
        max_size=4,
    ),
)
def test_the_command_line(tmp_path, monkeypatch, capsys, command, words):
    """The data do not exist, so that no command line trains anything."""
    monkeypatch.chdir(tmp_path)
    arguments = [command, *words, *(["--data", "nothing"] if command in ("train", "study") else [])]
    with within(60), within_memory(), contextlib.suppress(SystemExit):  # any other error would be a traceback
        cli.main([word for word in arguments if "\0" not in word])
    printed = capsys.readouterr()
    assert printable(printed.out + printed.err, "\n\t") == printed.out + printed.err
