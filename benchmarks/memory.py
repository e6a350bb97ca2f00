"""`python -m benchmarks.memory [K SLICE]` prints the peak memory, in MB, of a process that does two updates."""

import resource
import sys
from pathlib import Path

from benchmarks.subjects import updates


def peak_megabytes() -> int:
    """Return the peak memory of this process. On Linux `getrusage` would include the parent process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024**2  # in bytes, on macOS
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        K, slice_size = int(sys.argv[1]), int(sys.argv[2]) or None
        run, _ = updates("generative", K, 24, 200, repeats=1, slice_size=slice_size)
        run()
    print(peak_megabytes())
