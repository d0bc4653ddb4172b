"""Experiments of the package: each module is a command whose output is kept under ``results/``."""
