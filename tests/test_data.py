"""The data sets, and everything that can go wrong with them. No test uses the network."""

import contextlib
import dataclasses
import errno
import gzip
import hashlib
import http.server
import io
import lzma
import os
import runpy
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vimco.data.catalogue
from vimco.data import Dataset, available, fetch, halves, load_dataset
from vimco.data.binarized_mnist import BINARIZED_MNIST, images_of_amat
from vimco.data.caltech_silhouettes import images_of_silhouettes
from vimco.data.embedded import MNIST, MNIST_FILE
from vimco.data.packed import Identity, read_packed, write_packed
from vimco.data.published import PublishedFile, PublishedSet
from vimco.data.randomness import bernoulli, shuffled_indices, uniforms
from vimco.data.retrieval import cached_file, fetch_published, load_published
from vimco.errors import UsageError


def random_pixels(number, width, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (number, width)).astype(np.uint8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Hide the user's cache and data folder from the tests."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("VIMCO_CACHE", str(folder))
    monkeypatch.delenv("VIMCO_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


# The record


def test_checksum_is_of_values_and_shapes():
    """From its definition: for each split a line with the shape, then the bits."""
    images = np.array([[1, 0, 0, 0, 0, 0, 0, 0, 1, 0], [0, 1, 1, 1, 1, 1, 1, 1, 0, 1]], np.uint8)
    dataset = Dataset("tiny", images, images[:1], images[1:], (2, 5))
    bits = [b"\x80\x80", b"\x7f\x40"]
    expected = b"2 x 2 x 5\n" + bits[0] + bits[1] + b"1 x 2 x 5\n" + bits[0] + b"1 x 2 x 5\n" + bits[1]
    assert dataset.checksum == hashlib.sha256(expected).hexdigest()
    assert Dataset("tiny", images, images[:1], images[1:], (5, 2)).checksum != dataset.checksum
    assert Dataset("other name", images.copy(order="F"), images[:1], images[1:], (2, 5)).checksum == dataset.checksum


def test_training_mean_is_exact():
    train = random_pixels(7, 6)
    dataset = Dataset("tiny", train, train[:1], train[:1], (2, 3))
    assert dataset.training_mean.dtype == np.float64
    np.testing.assert_array_equal(dataset.training_mean, [sum(map(int, column)) / 7 for column in train.T])


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (np.zeros((3, 4), np.float32), "float32"),
        (np.zeros((3, 5), np.uint8), r"\(3, 5\)"),
        (np.zeros((0, 4), np.uint8), "empty"),
        (np.full((3, 4), 2, np.uint8), "other than 0 and 1"),
    ],
)
def test_record_refuses_what_is_not_binary_images(train, message):
    good = np.zeros((3, 4), np.uint8)
    with pytest.raises(UsageError, match=message):
        Dataset("tiny", train, good, good, (2, 2))


def test_halves_are_the_upper_and_the_lower_rows():
    image = np.arange(12).reshape(1, 12)
    top, bottom = halves(image, (4, 3))
    np.testing.assert_array_equal(top, [[0, 1, 2, 3, 4, 5]])
    np.testing.assert_array_equal(bottom, [[6, 7, 8, 9, 10, 11]])
    top, bottom = halves(image, (3, 4))
    assert (top.shape, bottom.shape) == ((1, 4), (1, 8))


def test_halves_need_rows():
    with pytest.raises(UsageError, match="no top and bottom half"):
        halves(np.zeros((1, 12)), (1, 12))
    with pytest.raises(UsageError, match="12 pixels are not 2 x 5"):
        halves(np.zeros((1, 12)), (2, 5))


# Randomness


def test_random_numbers_are_those_of_the_raw_generator():
    """The first draws of PCG64 with seed 2016: the test fails if numpy changes its stream."""
    raw = np.random.PCG64(2016).random_raw(3)
    np.testing.assert_array_equal(
        raw, np.array([0xF799B040362249CD, 0x56F4FF9DA9B93426, 0x41734CC09BFC0169], np.uint64)
    )
    np.testing.assert_array_equal(uniforms(np.random.PCG64(2016), 3), [(int(r) >> 11) / 2**53 for r in raw])
    assert sorted(shuffled_indices(np.random.PCG64(0), 50)) == list(range(50))


def test_bernoulli_is_certain_at_the_ends_and_does_not_depend_on_blocks():
    levels = np.tile(np.array([0, 255, 51], np.uint8), (2500, 1))
    draws = bernoulli(np.random.PCG64(1), levels, white=255)
    assert not draws[:, 0].any()
    assert draws[:, 1].all()
    np.testing.assert_array_equal(draws[:, 2], uniforms(np.random.PCG64(1), 2500, 3)[:, 2] < 0.2)
    assert abs(draws[:, 2].mean() - 0.2) < 0.03  # four standard deviations; the seed is fixed


# The sets that come with the package


def test_embedded_mnist():
    dataset = load_dataset("mnist")
    assert [images.shape for images in dataset.splits.values()] == [(50_000, 784), (10_000, 784), (10_000, 784)]
    assert all(images.dtype == np.uint8 for images in dataset.splits.values())
    assert dataset.checksum == MNIST.checksum
    assert dataset.image_shape == (28, 28)
    assert "not comparable" in dataset.note
    # The mean grey level of MNIST's 60,000 training images is 33.318 of 255; 47 million draws come close to it.
    mean = (5 * dataset.train.mean() + dataset.validation.mean()) / 6
    assert abs(mean - 33.318 / 255) < 1e-4
    assert MNIST_FILE.stat().st_size < 2_200_000


def test_damaged_package_says_so(tmp_path, monkeypatch):
    damaged = tmp_path / "mnist.npy.xz"
    damaged.write_bytes(MNIST_FILE.read_bytes()[:-1000])
    monkeypatch.setattr("vimco.data.embedded.MNIST_FILE", damaged)
    with pytest.raises(UsageError, match="install vimco again"):
        load_dataset("mnist")


def test_synthetic_bars_are_mostly_bars():
    dataset = load_dataset("synthetic")  # loading compares the checksum
    assert [len(images) for images in dataset.splits.values()] == [600, 200, 200]
    images = dataset.train.reshape(-1, 8, 8)
    vertical = (images == images.mean(1, keepdims=True).round()).all((1, 2))
    horizontal = (images == images.mean(2, keepdims=True).round()).all((1, 2))
    clean = 0.98**64  # the share of images without a flipped pixel: 0.27
    assert abs((vertical | horizontal).mean() - clean) < 0.06
    assert 0.4 < vertical.sum() / (vertical | horizontal).sum() < 0.6


def test_script_reads_grey_images_in_each_form(tmp_path, monkeypatch):
    """The script's own check, by SHA-256, is applied to four made-up images."""
    script = Path(__file__).parents[1] / "scripts" / "make_mnist.py"
    make_mnist = runpy.run_path(str(script))
    grey_levels, known = make_mnist["grey_levels"], make_mnist["GREY_SHA256"]
    grey = np.random.default_rng(0).integers(0, 256, (4, 784)).astype(np.uint8)
    known["train"] = hashlib.sha256(grey.tobytes()).hexdigest()
    with pytest.raises(SystemExit, match="holds none of train-images"):
        grey_levels(tmp_path, "train")
    lines = ["label,pixels", *(",".join(map(str, [7, *row])) for row in grey)]
    (tmp_path / "mnist_train.csv").write_text("\n".join(lines))
    np.testing.assert_array_equal(grey_levels(tmp_path, "train"), grey)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + grey.tobytes()))
    np.testing.assert_array_equal(grey_levels(tmp_path, "train"), grey)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bytes(16) + grey.tobytes())
    np.testing.assert_array_equal(grey_levels(tmp_path, "train"), grey)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bytes(16) + (grey ^ 1).tobytes())
    with pytest.raises(SystemExit, match="does not hold the images of MNIST"):
        grey_levels(tmp_path, "train")
    make_mnist["LABELS_SHA256"]["train"] = hashlib.sha256(bytes([7, 7, 7, 7])).hexdigest()
    np.testing.assert_array_equal(make_mnist["labels_of"](tmp_path, "train"), [7, 7, 7, 7])
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(bytes(8) + bytes([7, 7, 7, 8]))
    with pytest.raises(SystemExit, match="does not hold the labels of MNIST"):
        make_mnist["labels_of"](tmp_path, "train")


# Published sets: a tiny one, in the format of the official files


def amat(pixels):
    return b"".join(b" ".join(b"%d" % p for p in row) + b"\n" for row in pixels)


class Tiny:
    """A published set of three small files, and a folder that holds them."""

    def __init__(self, folder, mirrors=()):
        images = random_pixels(12, 12)
        sizes = (6, 4, 2)
        self.dataset = Dataset("tiny", *np.split(images, [6, 10]), (3, 4))
        self.contents = {f"{s}.amat": amat(p) for s, p in self.dataset.splits.items()}
        self.folder = folder
        folder.mkdir()
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)
        files = tuple(PublishedFile(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in self.contents.items())
        identity = Identity("tiny", "for tests", sizes, (3, 4), self.dataset.checksum)
        self.published = PublishedSet(identity, files, tuple(mirrors), images_of_amat)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    tiny = Tiny(tmp_path / "published")
    monkeypatch.setitem(vimco.data.catalogue.DATASETS, "tiny", tiny.published)
    return tiny


def files_below(folder):
    return sorted(path for path in Path(folder).rglob("*")) if Path(folder).exists() else []


def test_fetch_from_a_folder_fills_the_cache(tiny, cache):
    path = fetch("tiny", tiny.folder)
    assert files_below(cache) == [path]
    for name in tiny.contents:  # the cache alone is enough from now on
        (tiny.folder / name).unlink()
    dataset = load_dataset("tiny")
    assert dataset.checksum == tiny.dataset.checksum
    np.testing.assert_array_equal(dataset.validation, tiny.dataset.validation)
    assert fetch("tiny") == path


def test_folder_in_the_environment(tiny, cache, monkeypatch):
    monkeypatch.setenv("VIMCO_DATA", str(tiny.folder))
    assert load_dataset("tiny").checksum == tiny.dataset.checksum
    assert files_below(cache) == [cache / "tiny.npy.xz"]


def test_folder_in_the_environment_that_is_none(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("VIMCO_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"VIMCO_DATA names .*nowhere, which is not a folder"):
        load_dataset("tiny")


def test_loading_from_a_folder_needs_no_cache(tiny, cache):
    assert load_dataset("tiny", folder=tiny.folder).checksum == tiny.dataset.checksum
    assert not cache.exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "is not there"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "95 bytes and the published file 96: it is truncated"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"0", 1)), "SHA-256 differs"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
    ],
)
def test_wrong_file_is_named_and_nothing_is_left(tiny, cache, damage, message):
    damage(tiny.folder / "validation.amat")
    with pytest.raises(UsageError, match=rf"validation\.amat .*{message}"):
        fetch("tiny", tiny.folder)
    assert files_below(cache) == []


def test_wrong_folder_leaves_the_cache_as_it_was(tiny, cache, tmp_path):
    path = fetch("tiny", tiny.folder)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"train\.amat is not there"):
        fetch("tiny", tmp_path)
    assert path.read_bytes() == before


def array_with(header):
    """Return a compressed `.npy` file with this header and no values."""
    return lzma.compress(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c[:-5],
        lambda c: b"",
        lambda c: b"not xz",
        lambda c: c[:40] + b"\0" + c[41:],
        lambda c: array_with(b"{'descr': '|u1', 'fortran_order': False, 'shape': (12, 2"),
        lambda c: array_with(b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999, 2), }"),
        lambda c: lzma.compress(b"PK\x03\x04, a zip file it is not"),
    ],
    ids=["cut", "empty", "not-xz", "one-byte", "unclosed", "huge", "zip"],
)
def test_damaged_cache_is_replaced(tiny, monkeypatch, damage):
    path = fetch("tiny", tiny.folder)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    monkeypatch.setenv("VIMCO_DATA", str(tiny.folder))
    with pytest.warns(UserWarning, match=r"tiny\.npy\.xz cannot be read or is damaged .* It is replaced"):
        assert load_dataset("tiny").checksum == tiny.dataset.checksum
    assert path.read_bytes() == good


def test_cache_without_a_checksum_belongs_to_its_files(tiny, cache):
    """A second version of the files, under the same names, is not answered by the pixels of the first."""
    identity = dataclasses.replace(tiny.published.identity, checksum=None)
    first = dataclasses.replace(tiny.published, identity=identity)
    fetch_published(first, tiny.folder)
    content = amat(1 - tiny.dataset.test)
    (tiny.folder / "test.amat").write_bytes(content)
    file = PublishedFile("test.amat", len(content), hashlib.sha256(content).hexdigest())
    second = dataclasses.replace(first, files=(*first.files[:2], file))
    fetch_published(second, tiny.folder)
    np.testing.assert_array_equal(load_published(first, None).test, tiny.dataset.test)
    np.testing.assert_array_equal(load_published(second, None).test, 1 - tiny.dataset.test)


def test_cache_of_other_pixels_is_refused(tiny, tmp_path):
    other = Dataset("tiny", *np.split(random_pixels(12, 12, seed=1), [6, 10]), (3, 4))
    write_packed(tmp_path / "other", other)
    with pytest.raises(UsageError, match="not the known ones"):
        read_packed(tmp_path / "other", tiny.published.identity)
    fewer = Dataset("tiny", *np.split(random_pixels(11, 12), [6, 10]), (3, 4))
    write_packed(tmp_path / "fewer", fewer)
    with pytest.raises(UsageError, match="has 12 images, not 11"):
        read_packed(tmp_path / "fewer", tiny.published.identity)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_full_disk_is_said_and_nothing_is_left(tiny, cache, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[step], full)
    with pytest.raises(UsageError, match=r"tiny\.npy\.xz cannot be written: No space left on device.*VIMCO_CACHE"):
        fetch("tiny", tiny.folder)
    assert files_below(cache) == []


def test_cache_that_cannot_be_made(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VIMCO_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cannot be written"):
        fetch("tiny", tiny.folder)


def test_default_cache_is_the_systems(tiny, monkeypatch):
    import pooch

    monkeypatch.delenv("VIMCO_CACHE")
    assert cached_file(tiny.published) == Path(pooch.os_cache("vimco")) / "tiny.npy.xz"


# Downloads, from servers on this machine


@pytest.fixture
def mirror():
    """Yield `serve(contents, cut=0)`, which serves files by name without their last `cut` bytes, at an address."""
    servers = []

    def serve(contents, cut=0):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                content = contents.get(self.path.lstrip("/"))
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write((content or b"")[: len(content or b"") - cut])

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


NOBODY = "http://127.0.0.1:9/"  # the discard port: nothing listens


def test_mirrors_are_tried_in_turn(tmp_path, cache, mirror):
    tiny = Tiny(tmp_path / "published")
    wrong = {name: content.replace(b"1", b"0", 1) for name, content in tiny.contents.items()}
    mirrors = (NOBODY, mirror({}), mirror(wrong), mirror(tiny.contents, cut=7), mirror(tiny.contents))
    published = PublishedSet(tiny.published.identity, tiny.published.files, mirrors, images_of_amat)
    calls = []
    dataset = load_published(published, None, lambda *call: calls.append(call))
    assert dataset.checksum == tiny.dataset.checksum
    assert files_below(cache) == [cache / "tiny.npy.xz"]
    for file in published.files:  # the progress never exceeds the total, and reaches it
        done = [(number, total) for name, number, total in calls if name == file.name]
        assert done[-1] == (file.size, file.size)
        assert all(0 <= number <= file.size == total for number, total in done)


def test_no_mirror_has_it(tmp_path, cache, mirror, caplog, monkeypatch):
    import pooch

    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    tiny = Tiny(tmp_path / "published")
    truncated = mirror({name: content[:-1] for name, content in tiny.contents.items()})
    partial = mirror({"train.amat": tiny.contents["train.amat"]})
    published = PublishedSet(
        tiny.published.identity, tiny.published.files, (truncated, partial, NOBODY), images_of_amat
    )
    with pytest.raises(UsageError) as caught:
        fetch_published(published, None)
    message = str(caught.value)
    assert message.startswith("validation.amat cannot be downloaded")
    assert "not the published one" in message
    assert "HTTPError 404" in message
    assert f"{NOBODY}: ConnectionError" in message
    assert "train.amat, validation.amat, test.amat" in message
    assert "vimco data fetch tiny --from FOLDER" in message
    assert files_below(cache) == []
    assert not caplog.records  # pooch would announce each attempt


def test_full_disk_during_a_download_is_not_blamed_on_the_mirror(tmp_path, cache, mirror, monkeypatch):
    tiny = Tiny(tmp_path / "published")
    published = PublishedSet(tiny.published.identity, tiny.published.files, (mirror(tiny.contents),), images_of_amat)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pooch.core.shutil.move", full)
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        fetch_published(published, None)
    assert files_below(cache) == []


# The user's own arrays


def written(tmp_path, **arrays):
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize("validation", ["validation", "valid", "val"])
@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_three_arrays(tmp_path, validation, kind):
    train, valid, test = (random_pixels(n, 16, seed=n) for n in (5, 3, 2))
    arrays = {"train": train.astype(kind), validation: valid.astype(kind), "test": test.astype(kind)}
    dataset = load_dataset(written(tmp_path, **arrays, labels=np.arange(5)))
    assert dataset.image_shape == (4, 4)
    assert (dataset.name, dataset.note) == ("own.npz", "")
    assert dataset.checksum == Dataset("", train, valid, test, (4, 4)).checksum


@pytest.mark.parametrize(
    ("shape", "image_shape"), [((10,), (1, 10)), ((9,), (3, 3)), ((2, 8), (2, 8)), ((1, 9), (1, 9))]
)
def test_image_shape(tmp_path, shape, image_shape):
    images = random_pixels(21, int(np.prod(shape))).reshape(21, *shape)
    np.save(tmp_path / "own.npy", images)
    assert load_dataset(str(tmp_path / "own.npy")).image_shape == image_shape


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_single_array_is_shuffled_and_split(tmp_path, suffix):
    numbers = np.arange(23)[:, None] >> np.arange(5) & 1  # row n is n in binary
    path = tmp_path / f"own{suffix}"
    (np.save if suffix == ".npy" else np.savez)(path, numbers)
    dataset = load_dataset(str(path))
    rows = [images @ (1 << np.arange(5)) for images in dataset.splits.values()]
    assert [len(row) for row in rows] == [17, 3, 3]
    assert sorted(np.concatenate(rows)) == list(range(23))
    # Where the three smallest of 23 raw draws with seed 0 stand. A change would mix a user's training and test images.
    assert list(rows[2]) == [11, 3, 20]


def test_grey_levels_are_binarized_on_request(tmp_path):
    grey = np.tile(np.array([[0, 255, 51, 204]], np.uint8), (400, 1))
    darkest = np.ones((1, 4), np.uint8)  # level 1 of 255, because other splits are brighter: not white
    path = written(tmp_path, train=grey, validation=darkest, test=grey[:50])
    with pytest.raises(UsageError, match=r"own\.npz holds grey levels.*--binarize SEED"):
        load_dataset(path)
    dataset = load_dataset(path, binarize=3)
    assert dataset.checksum == load_dataset(path, binarize=3).checksum != load_dataset(path, binarize=4).checksum
    np.testing.assert_allclose(dataset.training_mean, [0, 1, 0.2, 0.8], atol=0.08)  # four standard deviations
    assert not dataset.validation.any()
    assert "seed 3" in dataset.note
    fractions = {"train": grey / 255, "validation": darkest / 255, "test": grey[:50] / 255}
    assert load_dataset(written(tmp_path, **fractions), binarize=3).checksum == dataset.checksum
    mixed = {"train": grey, "validation": darkest, "test": grey[:50] / 255}
    assert load_dataset(written(tmp_path, **mixed), binarize=3).checksum == dataset.checksum


def test_binary_images_are_left_alone_by_binarization(tmp_path):
    path = written(tmp_path, images=random_pixels(70, 9))
    assert load_dataset(path, binarize=1).checksum == load_dataset(path).checksum


GOOD = np.zeros((2, 4), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train": GOOD, "test": GOOD}, "holds the arrays train, test; it needs"),
        ({"train": GOOD, "valid": GOOD, "val": GOOD, "test": GOOD}, "each once"),
        ({}, r"\(none\)"),
        ({"train": GOOD, "validation": GOOD[:0], "test": GOOD}, "validation .*is empty"),
        ({"train": GOOD[:, :0], "validation": GOOD, "test": GOOD}, "train .*is empty"),
        ({"train": GOOD, "validation": GOOD, "test": np.zeros((2, 9))}, "differ .*train 2 x 2.*test 3 x 3"),
        ({"train": GOOD, "validation": GOOD, "test": np.zeros(4)}, r"test .*shape \(4,\)"),
        ({"images": np.zeros((9, 2, 2, 3))}, r"shape \(9, 2, 2, 3\)"),
        ({"images": np.full((9, 4), np.nan)}, "NaN"),
        ({"images": np.full((9, 4), np.inf)}, "infinity"),
        ({"images": np.full((9, 4), 1.5)}, "values from 1.5 to 1.5"),
        ({"images": np.full((9, 4), 256)}, "values from 256"),
        ({"images": np.full((9, 4), -1)}, "values from -1"),
        ({"images": np.full((9, 4), 1j)}, "complex128"),
        ({"images": np.full((9, 4), "1")}, "<U1"),
        ({"images": GOOD}, "2 images, too few"),
    ],
)
@pytest.mark.parametrize("binarize", [None, 0])
def test_unsuitable_arrays(tmp_path, arrays, message, binarize):
    with pytest.raises(UsageError, match=message) as caught:
        load_dataset(written(tmp_path, **arrays), binarize=binarize)
    assert "own.npz" in str(caught.value)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def npz(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not numpy",
        npy(np.zeros((9, 4)))[:-1],
        npy(np.zeros((9, 4)))[:20],
        npy(np.full((9, 4), None)),
        npy(np.zeros((9, 4))).replace(b"(9, 4), ", b"(9" + b"9" * 14 + b", 4), ")[:128],
        npz(**{"train.npy": npy(np.zeros((9, 4)))})[:-30],
        npz(**{"train.npy": npy(np.full((9, 4), None))}),
        npz(**{"train.npy": b"\x93NUMPY"}),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_unreadable_file(tmp_path, content, suffix):
    path = tmp_path / f"own{suffix}"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"own\{suffix} cannot be read"):
        load_dataset(str(path))


def test_what_is_in_an_archive_but_no_array_is_left_alone(tmp_path):
    (tmp_path / "own.npz").write_bytes(npz(**{"readme.txt": "hello", "images.npy": npy(np.zeros((9, 4)))}))
    assert len(load_dataset(str(tmp_path / "own.npz")).train) == 7


@settings(max_examples=200, deadline=None)
@given(data=st.data(), archive=st.booleans())
def test_damage_gives_images_or_a_sentence(tmp_path_factory, data, archive):
    """For any changed bytes the result is a data set or a UsageError, never another exception."""
    content = bytearray(npz(**{"train.npy": npy(GOOD.repeat(9, 0))}) if archive else npy(GOOD.repeat(9, 0)))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(content)
    with contextlib.suppress(UsageError):
        assert isinstance(load_dataset(str(path)), Dataset)


def test_missing_file_and_unknown_name(tmp_path):
    with pytest.raises(UsageError, match=r"no file .*own\.npy"):
        load_dataset(str(tmp_path / "own.npy"))
    with pytest.raises(UsageError, match=r"no data set 'minst'; choose one of binarized-mnist, caltech-.*\.npz file"):
        load_dataset("minst")
    with pytest.raises(UsageError, match=r"'minst' to fetch; choose one of binarized-mnist, caltech-silhouettes\.$"):
        fetch("minst")


def test_options_that_do_not_apply(tmp_path):
    with pytest.raises(UsageError, match="nothing to binarize"):
        load_dataset("mnist", binarize=0)
    with pytest.raises(UsageError, match="must not be negative"):
        load_dataset("own.npy", binarize=-1)
    with pytest.raises(UsageError, match="serves binarized-mnist and caltech-silhouettes only, not synthetic"):
        load_dataset("synthetic", folder=tmp_path)
    with pytest.raises(UsageError, match="nothing to fetch"):
        fetch("mnist")


def test_list_of_sets(tiny, monkeypatch):
    def where():
        return {record.name: record.where for record in available()}

    assert where() == {
        "mnist": "embedded",
        "binarized-mnist": "not fetched",
        "caltech-silhouettes": "not fetched",
        "tiny": "not fetched",
        **dict.fromkeys(("synthetic", "translated-mnist", "cluttered-mnist", "translated-bars"), "generated"),
    }
    monkeypatch.setenv("VIMCO_DATA", str(tiny.folder))
    assert where()["tiny"] == "in VIMCO_DATA"
    assert where()["binarized-mnist"] == "not fetched"
    fetch("tiny")
    assert where()["tiny"] == "cached"
    for record in available():
        assert (record.path is None) == (record.where in ("not fetched", "generated"))


# The published formats


def test_silhouettes_are_turned_upright():
    """The published file runs down the columns and has 1 for background."""
    from scipy.io import savemat

    picture = np.zeros((28, 28), np.uint8)
    picture[2, 5:20] = 1  # a horizontal line near the top
    published = (1 - picture).T.reshape(1, 784)
    file = io.BytesIO()
    savemat(file, {"train_data": published, "val_data": published, "test_data": published})
    np.testing.assert_array_equal(images_of_silhouettes([file.getvalue()]), np.tile(picture.reshape(1, 784), (3, 1)))


REAL_DATA = Path(os.environ.get("VIMCO_DATA") or "nowhere")


@pytest.mark.skipif(
    not all((REAL_DATA / file.name).exists() for file in BINARIZED_MNIST.files),
    reason="VIMCO_DATA names no folder with the official binarized MNIST (.amat files)",
)
def test_official_binarized_mnist(cache):
    """Means as known of the official files; loading compares every pixel by checksum."""
    path = fetch("binarized-mnist", REAL_DATA)
    dataset = load_dataset("binarized-mnist")
    assert files_below(cache) == [path]
    means = [images.mean() for images in dataset.splits.values()]
    np.testing.assert_allclose(means, [0.130562, 0.131127, 0.132512], atol=5e-7)
    assert dataset.note == ""
