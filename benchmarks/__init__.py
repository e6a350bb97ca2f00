"""Speed and memory, each beside its own lower limit. `make bench`, or `python -m benchmarks --help`."""
