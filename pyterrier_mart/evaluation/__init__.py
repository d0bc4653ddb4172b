"""Cross-validation of trainable pipelines, and tables and charts of what :func:`pyterrier.Experiment` returns.

Example::

    from pyterrier_mart.evaluation import cross_validate, to_markdown

    results = cross_validate(
        {'BM25': bm25, 'Ranker': lambda fold: bm25 >> pt.text.get_text(data) >> Ranker(seed=fold.seed)},
        data.get_topics(), data.get_qrels(), path='runs/ranker')
    print(to_markdown(results.experiment(baseline='BM25')))
"""

from pyterrier_mart.evaluation.crossval import METRICS, CrossValidation, cross_validate
from pyterrier_mart.evaluation.folds import Fold, split
from pyterrier_mart.evaluation.render import bar_plot, to_latex, to_markdown
from pyterrier_mart.evaluation.significance import paired_test

__all__ = [
    "METRICS",
    "CrossValidation",
    "Fold",
    "bar_plot",
    "cross_validate",
    "paired_test",
    "split",
    "to_latex",
    "to_markdown",
]
