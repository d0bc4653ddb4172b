"""Which parts of a pipeline are trained."""

from __future__ import annotations

from collections.abc import Iterator

import pyterrier as pt

__all__ = ["estimators", "fitted_by"]


def estimators(pipeline: pt.Transformer) -> Iterator[pt.Transformer]:
    """Gives the estimators in a pipeline, without looking into them."""
    if isinstance(pipeline, pt.Estimator):
        yield pipeline
    else:
        for inner in _inner(pipeline):
            yield from estimators(inner)


def _inner(pipeline: pt.Transformer) -> Iterator[pt.Transformer]:
    try:
        found = pt.inspect.subtransformers(pipeline)
    except pt.inspect.InspectError:
        found = {}
    for inner in found.values():
        yield from inner if isinstance(inner, (list, tuple)) else [inner]


def fitted_by(pipeline: pt.Transformer, name: str) -> list[pt.Transformer]:
    """Returns the estimators that the ``fit`` of a pipeline trains.

    Raises:
        ValueError: If one is in it that no ``fit`` gets to: it would be tested untrained.
    """
    if isinstance(pipeline, pt.Estimator):
        return [pipeline]
    fitted: list[pt.Transformer] = []
    if isinstance(pipeline, _COMPOSE):  # fits those steps that are estimators themselves
        fitted = [step for step in _inner(pipeline) if isinstance(step, pt.Estimator)]
    elif hasattr(pipeline, "fit"):
        fitted = list(estimators(pipeline))
    for estimator in estimators(pipeline):
        if not any(estimator is other for other in fitted):
            raise ValueError(
                f"make_pipeline: the estimator {estimator!r} of {name!r} is inside another transformer, where fit does "
                "not get to; expected it as a step of the pipeline: a >> estimator >> b. What is to be used as it was "
                "trained before goes in as pt.apply.generic(pipeline.transform)."
            )
    return fitted


#: The class of ``a >> b``, whose name is not public.
_COMPOSE = type(pt.Transformer.identity() >> pt.Transformer.identity())
