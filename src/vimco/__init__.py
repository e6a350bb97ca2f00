"""Variational inference for Monte Carlo objectives."""
__version__ = "0.1.0"
