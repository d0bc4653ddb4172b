"""``pyterrier-mart meta``: train bi-encoders that align languages, measure them, and see what they learn from."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import pyterrier as pt
import typer

from pyterrier_mart.artifact import META
from pyterrier_mart.checks import check_choice
from pyterrier_mart.cli.console import arrow, errors, out
from pyterrier_mart.cli.inputs import read_frame
from pyterrier_mart.files import atomic_file, check_free
from pyterrier_mart.meta.config import ALGORITHMS, MetaConfig
from pyterrier_mart.meta.tasks import TRANSFER_MODES, TripletSet

if TYPE_CHECKING:
    from pyterrier_mart.evaluation.folds import Fold

__all__ = ["app", "read_config", "read_fold", "read_frame"]

_SAMPLE = 200  # texts of each language and side that centring learns from
_WORDS = {"none": None, "true": True, "false": False}
_PRESETS: dict[str, Callable[[str], MetaConfig]] = {
    "recommended": lambda algorithm: MetaConfig(), "paper": MetaConfig.paper, "code": MetaConfig.code
}  # fmt: skip

app = typer.Typer(
    help="Bi-encoders that learn to align languages from few examples, as MAML-Align does.", no_args_is_help=True
)

Encoder = Annotated[str, typer.Option(help="A packaged encoder, a directory, or one on a hub.")]
Transfer = Annotated[
    str | None,
    typer.Option(help=f"Languages of support and query sets: {', '.join(TRANSFER_MODES)}, or such as 'el_el-el_ar'."),
]
Data = Annotated[
    str,
    typer.Option(
        help="xquad-r, a dataset such as mart:xquad-r/de-en, or a directory with topics.tsv (qid, query, query_lang, "
        "perhaps qgroup, group), docs.tsv (docno, text, doc_lang, perhaps dgroup, group) and qrels.tsv (qid, docno, "
        "label), whose first lines name the columns."
    ),
]
Langs = Annotated[str | None, typer.Option(help="Only these. [default: all; of xquad-r ar,de,el,hi,ru,th,tr]")]
FoldIndex = Annotated[
    int | None,
    typer.Option(
        min=0, max=4, help="Which fifth of the groups is the test part. [default: 0 of xquad-r, else no split]"
    ),
]
Preset = Annotated[str, typer.Option(help=f"Settings to start from: {', '.join(_PRESETS)}.")]
Config = Annotated[Path | None, typer.Option(help="Settings as a JSON object, in place of --preset.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of MetaConfig, such as inner_lr=1e-2 or freeze=first:6; repeatable.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...")]


def read_config(
    preset: str, config: Path | None, settings: list[str] | None, algorithm: str = "maml-align", **options: Any
) -> MetaConfig:
    """Returns the settings that ``--preset`` for an algorithm, ``--config``, ``--set`` and other options name.

    Raises:
        ValueError: If a setting is unknown or out of range.
    """
    check_choice("preset", preset, _PRESETS)
    start = _PRESETS[preset](algorithm) if config is None else MetaConfig.read(config)
    values = start.as_json() | {name: value for name, value in options.items() if value is not None}
    for setting in settings or ():
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, such as inner_lr=1e-2, not {setting!r}")
        several = isinstance(values.get(name), list)
        try:
            values[name] = json.loads(f"[{text.strip('[]()')}]" if several else text)
        except ValueError:
            values[name] = text if name == "kd" else _WORDS.get(text.lower(), text)  # a kd may be called none
    return MetaConfig.from_json(values)


def read_fold(data: str, langs: str | None, fold: int | None) -> Fold[Any]:
    """Returns a fold of a corpus; without one, training and test set are all of it, and there is no validation set."""
    from pyterrier_mart.datasets.corpus import XQUAD_R_LANGS, MultilingualCorpus
    from pyterrier_mart.evaluation.folds import Fold, kfold_by_group

    wanted = None if langs is None else [lang.strip() for lang in langs.split(",")]
    if data == "xquad-r":
        corpus, fold = MultilingualCorpus.xquad_r(wanted or XQUAD_R_LANGS), fold or 0
    elif Path(data).is_dir():
        topics, docs, qrels = (read_frame(Path(data, name)) for name in ("topics.tsv", "docs.tsv", "qrels.tsv"))
        try:
            corpus = MultilingualCorpus.from_frames(topics, docs, qrels, data)
        except ValueError as err:
            raise ValueError(f"{data}: {err}") from err
        corpus = corpus.restrict(wanted, wanted)
    else:
        corpus = MultilingualCorpus.from_dataset(pt.get_dataset(data)).restrict(wanted, wanted)
    if fold is None:
        return Fold(0, corpus, None, corpus, 0)
    return next(part for part in kfold_by_group(corpus) if part.index == fold)


@app.command()
def train(
    output: Annotated[Path, typer.Option("--out", "-o", help="Directory to save the model to.", metavar="DIR")],
    encoder: Encoder = "e5-small",
    algorithm: Annotated[str, typer.Option(help=f"How to learn: {', '.join(ALGORITHMS[:-1])}.")] = "maml-align",
    transfer: Transfer = None,
    data: Data = "xquad-r",
    fold: FoldIndex = None,
    langs: Langs = None,
    preset: Preset = "recommended",
    config: Config = None,
    settings: Settings = None,
    steps: Annotated[int | None, typer.Option(help="Maximum number of meta-steps. [default: 20 epochs]", min=0)] = None,
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
) -> None:
    """Meta-learn to align languages, and save the model.

    Learns from the training part of a fold. The weights with the best AP@20 over all languages on its validation part
    are kept; without a fold, the last ones. Its test part is left for "meta evaluate". The same command resumes after
    an interruption, from the directory OUT.checkpoints, which is deleted when it is done.
    """
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever

    made = read_config(preset, config, settings, algorithm, transfer=transfer, max_steps=steps)
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists; name another path or pass --overwrite")
    check_free(output, overwrite, META)  # before the work and not after it
    parts = read_fold(data, langs, fold)
    folder = output.with_name(f"{output.name}.checkpoints")
    _say(f"{algorithm} on {encoder} with {parts.train!r}; checkpoints and log.csv are in {folder}")
    model = MetaSBERTRetriever(
        encoder, algorithm=algorithm, config=made, corpus=parts.train, valid_corpus=parts.valid, device=device,
        output_dir=folder, verbose=errors.is_terminal,
    )  # fmt: skip
    valid = () if parts.valid is None else (parts.valid.topics, parts.valid.qrels)
    model.fit(parts.train.topics, parts.train.qrels, *valid)
    model.save(output, overwrite=overwrite)
    shutil.rmtree(folder)
    assert model.history is not None
    scores = {row["step"]: row["dev_multi"] for row in model.history.evaluations}
    kept = model.history.best_step
    gain = f": multi AP@20 x100 {scores[0]:.1f} -> {scores[kept]:.1f} on the validation part" if scores else ""
    out.print(f"kept meta-step {kept}{gain}", f"wrote {output}", sep="\n", markup=False, emoji=False, soft_wrap=True)


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="What meta train saved, or an encoder as it is: e5-small, a directory.")],
    data: Data = "xquad-r",
    fold: FoldIndex = None,
    centre: Annotated[
        bool, typer.Option("--centre", help="Subtract the mean vector of each language, learned from training texts.")
    ] = False,
    langs: Langs = None,
    device: Device = "auto",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers to this file.")] = None,
    run_file: Annotated[
        Path | None, typer.Option("--run", help="Write the 20 best over all languages as a TREC run, .gz for gzipped.")
    ] = None,
) -> None:
    """Measure a model: AP@20 in one, across two and over all languages, and its bias to the query's language.

    mono: documents in the query's language; bi: in one other language, mean over all pairs; multi: in all languages
    at once. bias: percent of the 20 best documents of all languages that are in the query's; pool: of all documents.
    """
    from pyterrier_mart.dense.centring import LanguageCentering
    from pyterrier_mart.evaluation import lareqa
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever

    saved = (Path(model) / META).exists()
    with ExitStack() as stack:  # first, so that what cannot be written is known before the work
        files = [stack.enter_context(atomic_file(path)) if path else None for path in (json_file, run_file)]
        dense = MetaSBERTRetriever.load(model, device=device) if saved else MetaSBERTRetriever(model, device=device)
        parts = read_fold(data, langs, fold)
        corpus = parts.test
        _say(f"AP@20 x100{', centred' if centre else ''}: {corpus!r}")
        post = LanguageCentering.fit_corpus(dense, parts.train, sample=_SAMPLE) if centre else None
        vectors: lareqa.Vectors = {}
        frame = lareqa.lareqa_evaluate(dense, corpus, post=post, vectors=vectors)
        run = lareqa.lareqa_run(dense, corpus, post=post, vectors=vectors)
        bias = lareqa.language_bias(run, corpus).set_index("query_lang").add_prefix("bias_")
        rows, means = lareqa.by_language(frame).join(bias), lareqa.summarise(frame)
        if files[0] is not None:
            languages = json.loads(rows.to_json(orient="index", double_precision=15))
            found = {"model": model, "fold": parts.index, "centred": centre, "mean": means, "languages": languages}
            files[0].write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if files[1] is not None:
            pt.io.write_results(run, str(files[1]), run_name="mart")
    shown = pd.concat([rows, pd.DataFrame({**rows.mean(), **means}, index=["mean"])])
    shown = shown.assign(bias=100 * shown.pop("bias_share"), pool=100 * shown.pop("bias_pool_share"))
    out.print(shown.to_string(float_format="{:.1f}".format, na_rep=""), markup=False, soft_wrap=True)


@app.command()
def tasks(
    transfer: Transfer = None,
    number: Annotated[int, typer.Option("--n", help="How many tasks to show.", min=1)] = 2,
    encoder: Encoder = "e5-small",
    data: Data = "xquad-r",
    fold: FoldIndex = None,
    langs: Langs = None,
    settings: Settings = None,
) -> None:
    """Show meta-tasks as they are trained on: queries (?), positives (+) and negatives (-) with their ids.

    The encoder is used where it chooses: --set negatives=hard, --set query_sampling=similar.
    """
    from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
    from pyterrier_mart.meta.sampling import TripletTaskSampler

    made = read_config("recommended", None, settings, transfer=transfer)
    needed = made.negatives != "random" or made.query_sampling == "similar"
    source = TextEncoder(load_sentence_transformer(encoder), made.max_length) if needed else None
    sampler = TripletTaskSampler(read_fold(data, langs, fold).train, made, "train", source)
    for task in itertools.islice(sampler, number):
        path = sampler.paths[task.index % len(sampler.paths)]
        lines = [f"task {task.index}: {f' {arrow()} '.join(map(str, path))}"]
        for name, arrangement, of in zip(("support", "query", "second query"), path, task.sets, strict=False):
            assert isinstance(of, TripletSet)
            lines.append(f"{name} set {arrangement}")
            for anchor, positive, negatives in zip(of.anchors, of.positives, of.negatives, strict=True):
                lines.append(f"  ? {of.qids[anchor]}: {of.queries[anchor]}")
                lines.append(f"  + {of.docnos[positive]}: {of.documents[positive]}")
                lines.extend(f"  - {of.docnos[negative]}: {of.documents[negative]}" for negative in negatives)
        out.print(*lines, "", sep="\n", markup=False, emoji=False, soft_wrap=True)


def _say(message: str) -> None:
    errors.print(message, markup=False, emoji=False, soft_wrap=True)
