"""One pair of languages in the experiments with the re-ranker: its data, first stage and systems, and their options."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyterrier as pt

from experiments.options import at_least, between, device, norm, words
from experiments.paper import GROUPS
from pyterrier_mart import BM25Index, SMTQueryTranslator, TranslationTable, bm25_index
from pyterrier_mart.datasets import MartDataset, XQuADR
from pyterrier_mart.evaluation import CrossValidation, Fold, cross_validate

if TYPE_CHECKING:
    from pyterrier_mart import MARTReRanker

__all__ = ["DATA", "FOLDS", "Deeper", "RestOf", "Setting", "System", "arguments", "encoder_of", "languages"]

#: The collections, and what their documents are called in titles.
DATA = {"clef": "CLEF", "xquad-r": "XQuAD-R sentences"}
FOLDS = 5
_ENCODERS = {"clef": "bert-base-multilingual-uncased", "xquad-r": "e5-small"}
_RESULTS = 100  # documents of a run: what AP@100 looks at
# The options that decide what a re-ranker learns; results made with others are refused.
_LEARNING = (
    "train_size", "depth", "negative_depth", "epochs", "patience", "learning_rate", "new_learning_rate", "batch_size",
    "accumulation", "validation_depth", "validation_queries", "schedule", "freeze_layers", "mat_layers", "pooling",
    "init", "bf16", "seed",
)  # fmt: skip
# The usual values of options that came later: only others are written beside results, so that older ones are found.
_FIRST_STAGE = {"relate": True, "smt_stop": False, "k1": 0.9, "b": 0.4}
_LATER: Mapping[str, Any] = {
    **_FIRST_STAGE, "stop": True, "identity": "unknown", "threshold": 0.0, "loss": "pairwise-cross-entropy",
    "max_grad_norm": 1.0,
}  # fmt: skip


def arguments(description: str | None, pairs: Mapping[str, Collection[str]]) -> argparse.ArgumentParser:
    """Returns a parser with the options that all experiments have.

    Args:
        description: What the experiment is.
        pairs: By name of the collection, the pairs it runs over if none are named.
    """
    usual = "; ".join(f"{data}: {' '.join(names)}" for data, names in pairs.items())
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_argument_group("data")
    data.add_argument("--data", choices=list(DATA), default="xquad-r", help="the collection (xquad-r)")
    data.add_argument("--home", type=Path, metavar="DIR", help="the folder with the CLEF collection (CLEF_HOME)")
    data.add_argument(
        "--pairs",
        "--pair",
        nargs="+",
        metavar="PAIR",
        help=f"languages of topics and documents, or {', '.join(GROUPS)} ({usual})",
    )
    data.add_argument("--folds", type=int, nargs="+", help="the folds to run, of 5 (all)")
    data.add_argument(
        "--table", nargs="+", default=[], metavar="[PAIR=]TABLE", help="translation tables instead of the bundled ones"
    )
    first = parser.add_argument_group("translation and first stage")
    first.add_argument(
        "--relate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="words that the table lacks have the translations of their other forms, in SMT and in MART (yes)",
    )
    first.add_argument(
        "--smt-stop", action=argparse.BooleanOptionalAction, default=False, help="SMT drops stop words of topics (no)"
    )
    first.add_argument("--k1", type=between(0), default=0.9, help="of BM25 (0.9)")
    first.add_argument("--b", type=between(0, 1), default=0.4, help="of BM25 (0.4)")
    model = parser.add_argument_group("re-ranker")
    usual = "; ".join(f"{data}: {name}" for data, name in _ENCODERS.items())
    model.add_argument("--encoder", help=f"what the re-rankers start from ({usual})")
    model.add_argument("--mat-layers", type=int, nargs="+", default=[-3, -2])
    model.add_argument("--pooling", default="cls", choices=["cls", "pooler"])
    model.add_argument("--init", default="identity", choices=["identity", "random", "zero"])
    model.add_argument("--threshold", type=between(0, 1), default=0.0, help="least probability of a translation (0)")
    model.add_argument(
        "--identity",
        choices=["unknown", "always", "never"],
        default="unknown",
        help="words of topics that MART links to themselves: those that the table lacks, all, or none (unknown)",
    )
    model.add_argument(
        "--stop",
        type=words,
        default=True,
        metavar="usual|none|FILE",
        help="stop words, which MART's translation heads leave out: the usual ones, or those of a file, one a line",
    )
    model.add_argument("--depth", type=at_least(1), default=_RESULTS, help="documents to re-rank (100)")
    model.add_argument("--device", type=device, help="where to compute (the first GPU, or the CPU without one)")
    training = parser.add_argument_group("training")
    training.add_argument("--train-size", type=at_least(1), help="number of training topics to use (all)")
    training.add_argument(
        "--negative-depth", type=at_least(1), default=500, help="number of documents to draw negatives from (500)"
    )
    training.add_argument("--epochs", type=at_least(1), default=100)
    training.add_argument("--patience", type=at_least(1), default=20)
    training.add_argument("--learning-rate", type=float, default=2e-5)
    training.add_argument("--new-learning-rate", type=float, help="of the translation heads and the linear layer")
    training.add_argument("--batch-size", type=at_least(1), default=2)
    training.add_argument("--accumulation", type=at_least(1), default=8)
    training.add_argument(
        "--loss", default="pairwise-cross-entropy", choices=["pairwise-cross-entropy", "pairwise-softmax"]
    )
    training.add_argument(
        "--max-grad-norm", type=norm, default=1.0, help="gradients are scaled down to it (1), or none"
    )
    training.add_argument("--validation-depth", type=at_least(1), default=100)
    training.add_argument(
        "--validation-queries", type=at_least(0), help="number of validation topics (all; 0: keep the last epoch)"
    )
    training.add_argument("--schedule", default="constant_with_warmup", help="of the learning rate, or linear")
    training.add_argument(
        "--freeze-layers", type=at_least(0), help="0: the embeddings keep their weights, n: and n layers"
    )
    training.add_argument("--bf16", action="store_true", help="train in bfloat16 (on a GPU)")
    training.add_argument("--seed", type=int, default=42)
    return parser


def encoder_of(args: argparse.Namespace) -> str:
    """Returns the encoder that was named, or the usual one of the collection."""
    return args.encoder or _ENCODERS[args.data]


def languages(pair: str) -> tuple[str, str]:
    """Returns the languages of topics and documents.

    Raises:
        ValueError: If the pair does not name two.
    """
    source, _, target = pair.partition("-")
    if not (source.isalpha() and target.isalpha()) or source == target:
        raise ValueError(f"--pairs: expected two languages such as de-en, found {pair!r}")
    return source, target


class System(NamedTuple):
    """What is measured.

    Attributes:
        pipeline: A pipeline that is not trained, or a function that makes the one of a fold.
        settings: What decides its results, as JSON values.
    """

    pipeline: pt.Transformer | Callable[[Fold], pt.Transformer]
    settings: dict[str, Any]


class Setting:
    """A pair of languages: data and first stage. Makes systems and measures them.

    Args:
        args: The options of :func:`arguments`, and ``path``, where indexes, runs and trainings are kept.
        pair: Languages of the topics and of the documents.
        stack: Ends what is temporary.

    Raises:
        ValueError: If the pair or a table is not as expected, or there are too few topics.
        FileNotFoundError: If there is no table for the pair, or the collection is not there.
    """

    def __init__(self, args: argparse.Namespace, pair: str, stack: ExitStack):
        self.args, self.pair = args, pair
        self.languages = languages(pair)
        self.table = _table(args.table, pair)
        self.data: Any = _dataset(args, *self.languages)
        self.topics, self.qrels = self.data.get_topics(), self.data.get_qrels()
        self._check_topics()
        self.documents = len(self.data.documents())  # built now if need be, and not by every process
        self.path: Path | None = args.path / pair if args.path is not None else None
        self.index = self._index(_index_path(args.path, self.data, stack))
        self.bm25 = self.index.bm25(k1=args.k1, b=args.b, num_results=_RESULTS)
        self.translator = SMTQueryTranslator(self.table, relate=args.relate, stop=args.smt_stop)
        self.smt = self.translator >> self.bm25

    def _check_topics(self) -> None:
        groups = self.data.groups()
        found = len(self.topics) if groups is None else groups.nunique()
        if found < FOLDS:
            what = "topics" if groups is None else "groups of topics"
            raise ValueError(f"{self.pair}: expected at least {FOLDS} {what}, one for each fold, found {found}")

    def _index(self, path: Path) -> BM25Index:
        try:
            return bm25_index(self.data, path)
        except FileExistsError:  # another process, perhaps on another machine, was faster
            return bm25_index(self.data, path)

    def first(self) -> System:
        """Returns query translation with the table and BM25, which the re-rankers start from."""
        return System(self.smt, {"table": self.table.fingerprint, **self._unusual(_FIRST_STAGE)})

    def human(self) -> System:
        """Returns the upper bound: human translations of the topics."""
        return System(self.data.human_translation() >> self.bm25, self._unusual(("k1", "b")))

    def _unusual(self, names: Collection[str]) -> dict[str, Any]:
        """Returns the options of some names that do not have their usual values, as JSON values."""
        found = {name: getattr(self.args, name) for name in names}
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
        return {name: value for name, value in found.items() if value != _LATER[name]}

    def ranker(self, label: str, fold: Fold, **options: Any) -> MARTReRanker:
        """Returns an untrained re-ranker, which resumes its training in the fold if that was interrupted.

        Args:
            label: The name of the system.
            fold: The fold.
            **options: Arguments of :class:`MARTReRanker` that differ from those of the command line.
        """
        from pyterrier_mart import MARTReRanker, TrainingOptions  # torch: not before the options are checked

        a = self.args
        place = self.path / "training" / f"{label}-{fold.index}".replace(" ", "-") if self.path is not None else None
        training = TrainingOptions(
            epochs=a.epochs, patience=a.patience, learning_rate=a.learning_rate,
            new_learning_rate=a.new_learning_rate, batch_size=a.batch_size, accumulation=a.accumulation,
            loss=a.loss,
            max_grad_norm=a.max_grad_norm, negative_depth=a.negative_depth, validation_depth=a.validation_depth,
            validation_queries=a.validation_queries, freeze_layers=a.freeze_layers, seed=a.seed + fold.index,
            trainer={"lr_scheduler_type": a.schedule, **({"bf16": True} if a.bf16 else {})}, output_dir=place,
        )  # fmt: skip
        defaults: dict[str, Any] = {
            "table": self.table, "mat_layers": tuple(a.mat_layers), "translation_init": a.init, "pooling": a.pooling,
            "relate": a.relate, "stop": a.stop, "identity": a.identity, "threshold": a.threshold,
            "training": training, "positives_text": self.data, "device": a.device, "verbose": True,
        }  # fmt: skip
        return MARTReRanker(encoder_of(a), **{**defaults, **options})

    def pipeline(self, rank: MARTReRanker, fold: Fold) -> Any:
        """Returns the pipeline around a re-ranker: candidates, their texts, the re-ranker, and what it left out."""
        candidates: pt.Transformer = self.smt % self.args.depth
        if self.args.negative_depth > self.args.depth:
            bm25 = self.index.bm25(k1=self.args.k1, b=self.args.b, num_results=self.args.negative_depth)
            candidates = Deeper(candidates, self.translator >> bm25, fold.train)
        return candidates >> self.data.text_loader("text") >> rank >> RestOf(self.smt)

    def mart(self, label: str, **options: Any) -> System:
        """Returns a system with a re-ranker that is trained in each fold.

        Args:
            label: The name of the system.
            **options: As in :meth:`ranker`.
        """
        from pyterrier_mart.mart.attention import LINKING  # torch: not before the options are checked

        table = options.get("table", self.table)
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        settings = {
            "encoder": Path(encoder_of(self.args)).name,
            **{name: getattr(self.args, name) for name in _LEARNING},
            **self._unusual(_LATER),
            "linking": LINKING,
            **own,
            "table": table.fingerprint,
            "first_stage": self.table.fingerprint,
        }
        return System(lambda fold: self.pipeline(self.ranker(label, fold, **options), fold), settings)

    def run(self, systems: Mapping[str, System]) -> CrossValidation:
        """Trains and tests systems; what is done already is read."""
        a = self.args
        return cross_validate(
            {name: system.pipeline for name, system in systems.items()}, self.topics, self.qrels,
            folds=FOLDS, groups=self.data.groups(), path=self.path,
            only=a.folds or None, train_size=a.train_size, seed=a.seed,
            settings={name: system.settings for name, system in systems.items()}, verbose=True,
        )  # fmt: skip

    def known_words(self, table: TranslationTable) -> float:
        """Returns the share of the topics' words that a table knows."""
        return table.coverage(word for query in self.topics["query"] for word in table.source.tokens(query))


def _dataset(args: argparse.Namespace, source: str, target: str) -> MartDataset:
    if args.data == "clef":
        from pyterrier_mart.datasets.clef import CLEF

        return CLEF(source, target, home=args.home)
    return XQuADR(source, target)


def _table(named: Collection[str], pair: str) -> TranslationTable:
    """Returns the table of a pair: the one that was named for it or for all pairs, else the bundled one."""
    path = pair
    for entry in named:
        of, found, rest = entry.rpartition("=")
        if not found or of == pair:
            path = rest
    table = TranslationTable.load(path)
    if table.languages != languages(pair):
        raise ValueError(f"--table: expected a table for {pair}, found one for {'-'.join(table.languages)} at {path!r}")
    return table


def _index_path(path: Path | None, data: Any, stack: ExitStack) -> Path:
    """Returns where the index is kept: pairs with the same documents share one."""
    if path is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory())) / "index"
    return path / "index" / data.corpus_name.replace(":", "-").replace("/", "-")


class Deeper(pt.Transformer):
    """Looks for more documents for the topics of training: negatives are drawn from more than is re-ranked.

    Args:
        first: Finds the documents of all other topics.
        deep: Finds those of the topics of training.
        qids: The topics of training.
    """

    def __init__(self, first: pt.Transformer, deep: pt.Transformer, qids: Collection[str]):
        self.first, self.deep, self.qids = first, deep, frozenset(qids)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Finds them."""
        trained = inp["qid"].isin(self.qids)
        if trained.all() and len(inp):
            return self.deep(inp)
        if not trained.any():
            return self.first(inp)
        return pd.concat([self.deep(inp[trained]), self.first(inp[~trained])], ignore_index=True)


class RestOf(pt.Transformer):
    """Adds the documents of a first stage that were not re-ranked below those that were.

    AP@100 of a re-ranked top 20 would otherwise lose what the first stage found below it.

    Args:
        first: The first stage.
    """

    def __init__(self, first: pt.Transformer):
        self.first = first

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds them."""
        columns = [name for name in ("qid", "docno", "score", "rank") if name in inp]
        if inp.empty:
            return inp[columns]
        topics = inp[["qid", "query"]].drop_duplicates("qid")
        merged: Any = (pt.Transformer.from_df(inp[columns]) ^ self.first)(topics)
        return merged[columns]
