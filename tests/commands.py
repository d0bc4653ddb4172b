"""Runs the command line in the tests' process."""

import sys

import pytest

from pyterrier_mart import cli


def run_command(monkeypatch, capfd, *args):
    """Runs a command; returns its exit status, output and messages."""
    monkeypatch.setattr(sys, "argv", ["pyterrier-mart", *map(str, args)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    text, messages = capfd.readouterr()
    assert "Traceback" not in messages
    return end.value.code, text, messages
