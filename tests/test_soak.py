"""The campaign of `make soak`, in its short form: a few kills, drawn from a seed."""

import subprocess
import sys
from pathlib import Path


def test_a_few_kills_and_nothing_different(tmp_path):
    command = [sys.executable, Path(__file__).with_name("soak.py"), "--kills", "16", "--no-processes"]
    result = subprocess.run([*command, "--folder", tmp_path], capture_output=True, text=True, check=False, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 differences" in result.stdout
