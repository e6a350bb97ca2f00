"""Kernels: faster versions of plain definitions, with the same values."""
