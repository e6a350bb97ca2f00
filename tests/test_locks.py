"""Locks of run directories: whose they are, and how the lock of a dead machine is told from that of a living one."""

import contextlib
import fcntl
import json
import os
import threading
import time

import pytest

from vimco.errors import UsageError
from vimco.runs import locks
from vimco.runs.locks import LockedError, lock_for_training, wait_for_lock

ELSEWHERE = json.dumps({"host": "node7", "process": 12})


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(locks, "RENEWAL_SECONDS", 0.02)
    monkeypatch.setattr(locks, "EXPIRY_SECONDS", 0.5)
    monkeypatch.setattr(locks, "POLL_SECONDS", 0.02)


@pytest.fixture
def file(tmp_path):
    return tmp_path / ".lock"


def test_a_lock_names_its_owner_and_is_renewed_until_it_is_released(tmp_path, file):
    with lock_for_training(tmp_path) as lock:
        assert json.loads(file.read_text())["process"] == os.getpid()
        os.utime(file, (0, 0))
        while file.stat().st_mtime == 0:
            time.sleep(0.01)
        lock.check()
        with pytest.raises(LockedError, match="Another process is training"), lock_for_training(tmp_path):
            pass
    assert file.read_text() == ""
    os.utime(file, (0, 0))
    time.sleep(0.1)
    assert file.stat().st_mtime == 0


@pytest.mark.parametrize("is_free", [True, False])  # free: a file system that keeps locks from other machines
def test_the_lock_of_a_living_process_elsewhere_is_respected(tmp_path, file, is_free):
    file.write_text(ELSEWHERE)
    is_over = threading.Event()

    def renew():
        while not is_over.wait(0.05):
            os.utime(file)

    other = threading.Thread(target=renew)
    other.start()
    try:
        with file.open() as held:
            if not is_free:
                fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(LockedError, match="process 12 of node7"), lock_for_training(tmp_path):
                pass
    finally:
        is_over.set()
        other.join()
    assert file.read_text() == ELSEWHERE


@pytest.mark.parametrize("is_free", [True, False])  # not free: NFS may keep the lock of a dead machine
def test_the_lock_of_a_dead_machine_is_replaced_and_its_owner_locked_out(tmp_path, file, is_free):
    file.write_text(ELSEWHERE)
    with file.open() as held:
        if not is_free:
            fcntl.flock(held, fcntl.LOCK_EX)
        dead = locks.Lock(tmp_path, held.fileno())
        dead.check()
        with contextlib.ExitStack() as stack:
            with pytest.warns(UserWarning, match="left locked by process 12 of node7"):
                lock = stack.enter_context(lock_for_training(tmp_path))
            lock.check()
            assert json.loads(file.read_text())["process"] == os.getpid()
            with pytest.raises(UsageError, match="was moved, removed or replaced"):
                dead.check()
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_an_old_lock_needs_no_watching(tmp_path, file, monkeypatch):
    monkeypatch.setattr(locks, "EXPIRY_SECONDS", 1000.0)
    file.write_text(ELSEWHERE)
    os.utime(file, (1e9, 1e9))
    with pytest.warns(UserWarning, match="counts as dead"), lock_for_training(tmp_path):
        pass


def test_one_of_two_replaces_a_dead_lock(tmp_path, file):
    file.write_text("")
    with file.open() as dead:
        file.unlink()
        with lock_for_training(tmp_path), pytest.raises(LockedError, match="just begun"):
            locks._replace(tmp_path, dead.fileno())


@pytest.mark.parametrize("content", [b"[" * 5000, b"\xff\x00", b"[]", b'{"host": 1}', b'{"host": "a", "process": {}}'])
def test_a_strangers_lock_says_nothing(tmp_path, file, content):
    file.write_bytes(content)
    with lock_for_training(tmp_path):
        pass


def test_a_document_under_the_name_of_a_lock_keeps_its_content(tmp_path):
    (tmp_path / "document").write_text("mine")
    (tmp_path / "run").mkdir()
    os.link(tmp_path / "document", tmp_path / "run" / ".lock")
    with lock_for_training(tmp_path / "run"):
        pass
    assert (tmp_path / "document").read_text() == "mine"


def test_waiting_for_a_lock(tmp_path, file):
    wait_for_lock(tmp_path, 1000.0)
    assert not file.exists()
    with lock_for_training(tmp_path), pytest.raises(LockedError):
        wait_for_lock(tmp_path, 0.1)
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(0.2, lambda: fcntl.flock(held, fcntl.LOCK_UN)).start()
        wait_for_lock(tmp_path, 1000.0)
