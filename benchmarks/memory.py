"""`python -m benchmarks.memory [K SLICE]` prints the peak memory, in MB, of a process that does two updates."""

import resource
import sys

from benchmarks.subjects import updates

if __name__ == "__main__":
    if len(sys.argv) > 1:
        K, slice_size = int(sys.argv[1]), int(sys.argv[2]) or None
        run, _ = updates("generative", K, 24, 200, repeats=1, slice_size=slice_size)
        run()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
