"""Meta-learning on XQuAD-R and STS17, fold by fold: what is trained, measured and kept for the tables."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from experiments import report, translated
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.datasets.graded_pairs import PairCorpus
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
from pyterrier_mart.evaluation.folds import Fold, kfold_by_group, kfold_pairs
from pyterrier_mart.evaluation.lareqa import language_bias, lareqa_evaluate, lareqa_run, summarise
from pyterrier_mart.evaluation.sts import sts_evaluate
from pyterrier_mart.files import atomic_file
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.learners import LEARNERS
from pyterrier_mart.meta.retriever import MetaSBERTRetriever
from pyterrier_mart.meta.sampling import PairTaskSampler, TaskSampler, TripletTaskSampler
from pyterrier_mart.meta.training import train

__all__ = ["CENTRED", "PLAIN", "Bench", "Recipe", "Result", "changed", "recipes"]

#: What a system does to vectors before they are compared.
PLAIN, CENTRED = "plain", "centred"
_PRESETS: dict[str, Callable[[str], MetaConfig]] = {
    "recommended": lambda algorithm: MetaConfig(transfer="mono-bi-multi" if algorithm == "maml-align" else "mono-bi"),
    "paper": MetaConfig.paper,
    "code": MetaConfig.code,
}


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Attributes:
        name: What it is called on disk and in ``--set``.
        algorithm: One of ``ALGORITHMS``.
        config: The settings.
        pairs: Whether it is trained with pairs of STS17 in the place of XQuAD-R.
        translated: Whether it is trained with the user's translations in their place (the paper's T-Train).
    """

    name: str
    algorithm: str
    config: MetaConfig
    pairs: bool = False
    translated: bool = False

    @property
    def slug(self) -> str:
        """Its name as a directory."""
        return re.sub(r"\W+", "-", f"{'sts-' * self.pairs}{self.name}".lower()).strip("-")


@dataclass(frozen=True)
class Result:
    """What was measured of a model in a fold.

    Attributes:
        values: AP@20 of each question by what was done to vectors (:data:`PLAIN`, :data:`CENTRED`), as
            ``lareqa_evaluate`` returns it.
        info: Settings, seconds, correlations, language bias, and the log of training.
    """

    values: Mapping[str, pd.DataFrame]
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sts(self) -> pd.DataFrame:
        """Correlations by track."""
        return pd.DataFrame(self.info.get("sts") or [], columns=["track", "pairs", "pearson", "spearman"])


def recipes(args: argparse.Namespace) -> dict[str, Recipe]:
    """Returns the models of Table 1 by name."""
    base: dict[str, Any] = {"max_length": list(args.max_length), "max_steps": args.steps, "seed": args.seed}
    align, maml, tune = (
        {**_PRESETS[args.preset](algorithm).as_json(), **base} for algorithm in ("maml-align", "maml", "fine-tune")
    )
    made: dict[str, tuple[str, dict[str, Any]]] = {
        # The published baseline: the same tasks and steps, and the loss that the paper uses.
        "fine-tune": ("fine-tune", {**tune, "loss": "triplet"}),
        # The same tasks, steps and loss as MAML-Align, without inner loops and distillation.
        "joint": ("fine-tune", {**align, "transfer": "mono-bi-multi"}),
        # Small batches of like questions in one or two languages, and more steps: what is cheap today.
        "few-shot": (
            "fine-tune",
            {**align, "transfer": "mono-bi", "loss": "mnrl", "meta_batch_size": 1, "max_steps": 60},
        ),
        "maml": ("maml", maml),
        "maml-align": ("maml-align", align),
    }
    found = {"zero-shot": Recipe("zero-shot", "zero-shot", MetaConfig.from_json(align))}
    found |= {name: Recipe(name, of, changed(values, name, args.set)) for name, (of, values) in made.items()}
    if args.translated is not None:
        mono = translated.languages(_translations(args.translated, pairs=args.sts == "train"))
        for name in ("fine-tune", "maml"):
            algorithm, values = made[name]
            config = changed({**values, "transfer": mono, "update_on_valid": False}, f"t-train-{name}", args.set)
            found[f"t-train-{name}"] = Recipe(f"t-train-{name}", algorithm, config, translated=True)
    return found


@cache
def _translations(folder: Path, *, pairs: bool) -> Any:
    return translated.pairs(folder) if pairs else translated.corpus(folder)


def changed(values: Mapping[str, Any], name: str, settings: Iterable[str]) -> MetaConfig:
    """Returns a configuration with what ``--set NAME=VALUE`` and ``--set RECIPE.NAME=VALUE`` ask for.

    Raises:
        SystemExit: If a setting is unknown or out of range.
    """
    changes: dict[str, Any] = {}
    ordered = sorted(settings, key=lambda setting: "." in setting.partition("=")[0])  # those of one recipe last
    for setting in ordered:
        key, equals, text = setting.partition("=")
        recipe, dot, key = key.rpartition(".")
        if not equals:
            raise SystemExit(f"--set {setting}: expected NAME=VALUE or RECIPE.NAME=VALUE")
        if dot and recipe != name:
            continue
        try:
            changes[key] = json.loads(text)
        except ValueError:
            changes[key] = text
    try:
        config = MetaConfig.from_json({**values, **changes})
    except ValueError as err:
        raise SystemExit(f"--set: {err}") from err
    return config if "n_tasks" in changes else _within(config)


def _within(config: MetaConfig) -> MetaConfig:
    """Returns settings with an epoch that is not longer than training, where its last tasks are others than the first.

    So few meta-steps as are affordable would never reach the tasks of the development set otherwise.
    """
    steps, size, (train_tasks, valid_tasks, test_tasks) = config.max_steps, config.meta_batch_size, config.n_tasks
    if not config.update_on_valid or steps is None or steps < 2 or steps * size >= train_tasks + valid_tasks:
        return config
    of_valid = max(1, round(steps * valid_tasks / (train_tasks + valid_tasks)))
    return config.replace(n_tasks=((steps - of_valid) * size, of_valid * size, test_tasks))


class Bench:
    """Data and folds; trains and measures models, and keeps what was measured under a path."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.corpus = MultilingualCorpus.xquad_r(args.languages, args.doc_text)
        self.pairs = PairCorpus.sts17()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if args.path is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="meta-")
        self.root = Path(self._temporary.name if self._temporary is not None else args.path)

    def folds(self) -> Iterator[int]:
        """The folds that are asked for."""
        yield from sorted(set(self.args.folds))

    def fold(self, index: int) -> Fold[MultilingualCorpus]:
        """Returns a fold of XQuAD-R."""
        return next(fold for fold in kfold_by_group(self.corpus, valid=self.args.valid) if fold.index == index)

    def pair_fold(self, index: int) -> Fold[PairCorpus]:
        """Returns a fold of STS17."""
        return next(fold for fold in kfold_pairs(self.pairs, valid=self.args.valid) if fold.index == index)

    def results(self, made: Iterable[Recipe]) -> dict[tuple[str, int], Result]:
        """Returns what was measured of all models in all folds; what is not there yet is done first."""
        found = {}
        for index in self.folds():
            for recipe in made:
                found[recipe.slug, index] = self.result(recipe, index)
        return found

    def result(self, recipe: Recipe, index: int) -> Result:
        """Returns what was measured of a model in a fold, from disk if it is there.

        Raises:
            SystemExit: If what is there was made with other settings.
        """
        place = self.root / recipe.slug / f"fold-{index}"
        settings = self._settings(recipe, index)
        found = _read(place, settings)
        if found is None:
            print(f"{recipe.slug}, fold {index}", flush=True)
            _write(place, self._make(recipe, index, place), settings)
            found = _read(place, settings)
            assert found is not None
            shutil.rmtree(place, ignore_errors=True)  # checkpoints
            for what, frame in found.values.items():
                print(f"  {what}: {_rounded(summarise(frame))}", flush=True)
        return found

    # --- one model in one fold ------------------------------------------------------------------------------------

    def _make(self, recipe: Recipe, index: int, place: Path) -> Result:
        start = time.perf_counter()
        attention = "eager" if recipe.config.order == "second" else None
        model = load_sentence_transformer(self.args.encoder, device=self.args.device, attention=attention)
        encoder = TextEncoder(model, recipe.config.max_length)
        trained = self._train(recipe, index, encoder, place) if recipe.algorithm != "zero-shot" else {}
        middle = time.perf_counter()
        values: dict[str, pd.DataFrame] = {}
        bias: dict[str, Any] = {}
        if not recipe.pairs:
            fold = self.fold(index)
            vectors: dict[Any, Any] = {}
            for what, post in ((PLAIN, None), (CENTRED, self._centring(encoder, fold.train))):
                values[what] = lareqa_evaluate(encoder, fold.test, post=post, vectors=vectors)
                run = lareqa_run(encoder, fold.test, post=post, vectors=vectors)
                bias[what] = language_bias(run, fold.test).to_dict("records")
        sts = None
        if self.args.sts != "off":
            sts = sts_evaluate(encoder, self.pair_fold(index).test).to_dict("records")
        if self.args.save_models is not None and recipe.algorithm != "zero-shot":
            made = MetaSBERTRetriever(model, algorithm=recipe.algorithm, config=recipe.config)
            made.save(self.args.save_models / f"{recipe.slug}-fold-{index}", overwrite=True)
        seconds = {"train": middle - start, "evaluate": time.perf_counter() - middle}
        return Result(values, {"seconds": seconds, "sts": sts, "bias": bias, "device": str(model.device), **trained})

    def _train(self, recipe: Recipe, index: int, encoder: TextEncoder, place: Path) -> dict[str, Any]:
        args, config = self.args, recipe.config
        tasks: TaskSampler
        valid_tasks: TaskSampler | None = None
        if recipe.pairs:
            parts = self.pair_fold(index)
            pairs = parts.train
            if recipe.translated:
                given = _translations(args.translated, pairs=True)
                pairs = translated.without_sentences(given, (parts.valid, parts.test))
            tasks = PairTaskSampler(pairs, config)
            if config.update_on_valid:
                valid_tasks = PairTaskSampler(parts.valid, config, "valid")

            def evaluate() -> dict[str, float]:
                return {"pearson": float(sts_evaluate(encoder, parts.valid)["pearson"].mean())}

            metric = "pearson"
        else:
            fold = self.fold(index)
            texts = fold.train
            if recipe.translated:
                given = _translations(args.translated, pairs=False)
                texts = translated.without_groups(given, (fold.valid, fold.test))
            tasks = TripletTaskSampler(texts, config, "train", encoder)
            if config.update_on_valid:
                valid_tasks = TripletTaskSampler(fold.valid, config, "valid", encoder)
            groups = fold.valid.groups if args.dev is None else fold.valid.groups[: args.dev]
            langs = args.dev_languages
            dev = fold.valid.subset(groups).restrict(langs, langs) if groups else None

            def evaluate() -> dict[str, float]:
                assert dev is not None
                scores = summarise(lareqa_evaluate(encoder, dev))
                return {**scores, "mean": sum(scores.values()) / len(scores)}

            metric = args.metric
        learner = LEARNERS[recipe.algorithm](encoder, config)
        log = train(
            learner, tasks, evaluate=None if args.dev == 0 else evaluate, metric=metric, output_dir=place, verbose=True,
            valid_tasks=valid_tasks,
        )  # fmt: skip
        steps = [{name: round(v, 6) for name, v in row.items() if math.isfinite(v)} for row in log.steps]
        return {"best_step": log.best_step, "stopped": log.stopped, "log": steps}

    def _centring(self, encoder: TextEncoder, train_part: MultilingualCorpus) -> LanguageCentering:
        """Returns the centring with means of some training texts of each language and side."""
        frames = {}
        for side, frame, text, lang in (
            ("query", train_part.topics, "query", "query_lang"),
            ("document", train_part.docs, "text", "doc_lang"),
        ):
            some = frame.sample(frac=1, random_state=self.args.seed).groupby(lang, sort=True)
            rows = some.head(self.args.centring_texts)
            encoded = encoder.encode(rows[text], side)  # type: ignore[arg-type]
            frames[side] = rows.assign(**{"query_vec" if side == "query" else "doc_vec": list(encoded)})
        # The plainest form: means are subtracted, and the mean over all languages with them.
        return LanguageCentering(keep_global=False, shrinkage=1.0).fit(frames["query"], frames["document"])

    def _settings(self, recipe: Recipe, index: int) -> dict[str, Any]:
        """What decides a result, as JSON values."""
        args, config = self.args, recipe.config.as_json()
        found = {
            "encoder": Path(args.encoder).name, "algorithm": recipe.algorithm, "fold": index, "valid": args.valid,
            "sts": args.sts != "off", "sts_pairs": self.pairs.fingerprint[:16],
        }  # fmt: skip
        if not recipe.pairs:
            found |= {
                "languages": list(args.languages), "doc_text": args.doc_text, "corpus": self.corpus.fingerprint[:16],
                "centring_texts": args.centring_texts,
            }  # fmt: skip
        if recipe.translated:
            found["translated"] = _translations(args.translated, pairs=recipe.pairs).fingerprint[:16]
        if recipe.algorithm == "zero-shot":  # the others do not matter
            return {**found, "config": {name: config[name] for name in ("max_length", "seed")}}
        return {
            **found,
            "config": config,
            "dev": args.dev,
            "dev_languages": args.dev_languages,
            "metric": "pearson" if recipe.pairs else args.metric,
        }


# --------------------------------------------------------------------------------------------------------- on disk


def _write(place: Path, result: Result, settings: Mapping[str, Any]) -> None:
    """Writes values and then, as a sign that they are complete, the rest."""
    frames = [frame.assign(vectors=what) for what, frame in result.values.items()]
    if frames:
        buffer = io.StringIO()
        pd.concat(frames).to_csv(buffer, sep="\t", index=False, float_format="%.9g")
        with atomic_file(place.with_suffix(".queries.tsv.gz")) as tmp:
            tmp.write_bytes(gzip.compress(buffer.getvalue().encode(), mtime=0))
    content = {"settings": settings, "rows": sum(map(len, frames)), "versions": report.versions(), **result.info}
    with atomic_file(place.with_suffix(".json")) as tmp:
        tmp.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _later(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that there were not when something was measured, if they still have no effect."""
    default = MetaConfig().as_json()
    return {name: value for name, value in ours.items() if name not in theirs and value == default[name]}


def _read(place: Path, settings: Mapping[str, Any]) -> Result | None:
    """Reads what was measured; None if it is not there or not complete."""
    path = place.with_suffix(".json")
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    theirs = info.get("settings", {})
    config = {**_later(settings["config"], theirs.get("config", {})), **theirs.get("config", {})}
    if {**theirs, "config": config} != settings:
        other = [name for name, value in settings.items() if name != "config" and theirs.get(name) != value]
        other += [name for name, value in settings["config"].items() if config.get(name) != value]
        raise SystemExit(f"--path: {path} was made with other settings ({', '.join(other)}); name another path")
    if not info["rows"]:
        return Result({}, info)
    try:
        # No language is missing: "na" would be read as one.
        frame = pd.read_csv(place.with_suffix(".queries.tsv.gz"), sep="\t", keep_default_na=False)
    except (OSError, EOFError, ValueError):
        return None
    if len(frame) != info["rows"]:
        return None
    values = {str(what): rows.drop(columns="vectors").reset_index(drop=True) for what, rows in frame.groupby("vectors")}
    return Result(values, info)


def _rounded(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in scores.items())
