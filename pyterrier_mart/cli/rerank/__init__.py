"""``pyterrier-mart rerank``: scores a first stage's results with a saved model, in a stream that can be resumed."""

from __future__ import annotations

from pyterrier_mart.cli.rerank.command import rerank

__all__ = ["rerank"]
