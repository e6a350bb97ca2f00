"""The time until the first update of `vimco train`."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_SECONDS = 120


def seconds_to_first_update() -> float:
    """Return the seconds from the command to its first line of metrics, written after the first update."""
    program = Path(sys.executable).with_name("vimco")
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "run" / "metrics.jsonl"
        start = time.perf_counter()
        words = [program, "train", "--log-every", "1", "--updates", "1000000", "--output", metrics.parent]
        with (Path(folder) / "messages").open("w+") as messages:
            process = subprocess.Popen(words, stdout=messages, stderr=messages)
            try:
                while not (metrics.exists() and metrics.stat().st_size):
                    if process.poll() is not None or time.perf_counter() - start > LIMIT_SECONDS:
                        messages.seek(0)
                        raise RuntimeError(f"vimco train made no update: {messages.read()}")
                    time.sleep(0.01)
                return time.perf_counter() - start
            finally:
                process.kill()
                process.wait()
