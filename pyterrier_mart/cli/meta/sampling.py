"""``pyterrier-mart meta tasks``: shows what is trained on."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from pyterrier_mart.cli.console import arrow, errors, out
from pyterrier_mart.cli.meta.data import (
    FOLDS,
    Device,
    DocText,
    DocTextName,
    Languages,
    check_encoder,
    find_device,
    xquad_r_fold,
)
from pyterrier_mart.cli.meta.settings import ConfigFile, Preset, PresetName, Settings, Transfer, read_settings
from pyterrier_mart.meta.errors import EmptyLanguageError

if TYPE_CHECKING:
    from pyterrier_mart.dense.encoder import TextEncoder
    from pyterrier_mart.meta.config import MetaConfig
    from pyterrier_mart.meta.episodes import TripletEpisode
    from pyterrier_mart.meta.sampling import TripletTaskSampler

__all__ = ["tasks"]

_SETS = ("support", "query", "second query")


class NegativesName(str, Enum):
    """The choices of ``--negatives``."""

    random = "random"
    hard = "hard"
    semi_hard = "semi-hard"
    easy = "easy"


class SplitName(str, Enum):
    """The choices of ``--split``."""

    train = "train"
    valid = "valid"
    test = "test"


def tasks(
    transfer: Transfer = None,
    number: Annotated[int, typer.Option("--n", help="How many tasks to show.", min=1)] = 2,
    negatives: Annotated[
        NegativesName | None,
        typer.Option(
            help="Which candidates are negatives, by their distance under --encoder. [default: random]",
            show_default=False,
        ),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="What measures distances: a packaged encoder, a directory, or one on a hub.")
    ] = "e5-small",
    fold: Annotated[int, typer.Option(help="Which fold of XQuAD-R.", min=0, max=FOLDS - 1)] = 0,
    split: Annotated[SplitName, typer.Option(help="Which of the fold's articles.")] = SplitName.train,
    preset: PresetName = Preset.recommended,
    config: ConfigFile = None,
    settings: Settings = None,
    langs: Languages = None,
    doc_text: DocTextName = DocText.sentence,
    full: Annotated[bool, typer.Option("--full", help="Do not cut texts to the width of the terminal.")] = False,
    device: Device = "auto",
) -> None:
    """Show meta-tasks as they are trained on: questions, positives (+) and negatives (-) with their languages.

    Distances, where an encoder chooses, are those of the question to the candidate.
    """
    chosen = None if negatives is None else negatives.value
    made = read_settings(
        preset, config, settings, {"transfer": ("--transfer", transfer), "negatives": ("--negatives", chosen)}
    )
    where = find_device(device)
    mined = made.negatives != "random"
    source = None
    if mined or made.query_sampling == "similar":
        check_encoder(encoder, "--encoder")
    data = xquad_r_fold(fold, langs, doc_text)
    corpus = {"train": data.train, "valid": data.valid, "test": data.test}[split.value]
    if mined or made.query_sampling == "similar":
        errors.print(f"encoding the texts of {corpus.name} with {encoder}", markup=False, soft_wrap=True)
        source = _encoder(encoder, made, where)
    from pyterrier_mart.meta.sampling import TripletTaskSampler

    try:
        sampler = TripletTaskSampler(corpus, made, split.value, source)
    except EmptyLanguageError as err:
        raise ValueError(f"--transfer {made.transfer}: {err}") from err
    if number > len(sampler):
        raise ValueError(f"--n {number}: an epoch has {len(sampler)} tasks (--set n_tasks={made.as_json()['n_tasks']})")
    for i in range(number):
        _show(sampler, i, mined, full)


def _encoder(name: str, config: MetaConfig, device: str) -> TextEncoder:
    from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
    from pyterrier_mart.devices import quiet

    with quiet():
        return TextEncoder(load_sentence_transformer(name, device=device), config.max_length)


def _show(sampler: TripletTaskSampler, index: int, distances: bool, full: bool) -> None:
    task = sampler[index]
    path = sampler.paths[index % len(sampler.paths)]
    out.print(f"task {index}: {f' {arrow()} '.join(map(str, path))}", style="bold", markup=False, soft_wrap=True)
    for name, arrangement, episode in zip(_SETS, path, (task.support, task.query, task.query2), strict=False):
        assert episode is not None
        questions = f"{len(episode.qids)} questions"  # type: ignore[union-attr]
        table = Table(
            title=Text(f"{name} set {arrangement}: {questions}, {len(episode)} rows"), title_justify="left",
            show_header=False, box=None, pad_edge=False, expand=not full,
        )  # fmt: skip
        table.add_column()
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=not full, overflow="fold" if full else "ellipsis")
        table.add_column(no_wrap=True)
        if distances:
            table.add_column(justify="right", no_wrap=True)
        for row in _rows(sampler, episode, distances):
            table.add_row(*row)
        out.print(table)
    out.print()


def _rows(sampler: TripletTaskSampler, episode: Any, distances: bool) -> Iterator[list[Text]]:
    """Rows of the table: sign, language, text, name, distance to the question."""
    shown: TripletEpisode = episode
    languages = dict(zip(sampler.corpus.docs["docno"], sampler.corpus.docs["doc_lang"], strict=True))
    asked = dict(zip(sampler.corpus.topics["qid"], sampler.corpus.topics["query_lang"], strict=True))
    before = None
    for anchor, positive, negatives in zip(shown.anchors, shown.positives, shown.negatives, strict=True):
        qid = shown.qids[anchor]
        if qid != before:
            yield [Text("?", "bold"), Text(asked[qid]), Text(_line(shown.queries[anchor]), "bold"), Text(qid, "dim")]
            before = qid
        for sign, style, place in (("+", "green", positive), *(("-", "red", place) for place in negatives)):
            docno = shown.docnos[place]
            cells = [sign, languages[docno], _line(shown.documents[place]), docno]
            if distances:
                cells.append(f"{sampler.miner.distance(qid, docno):.3f}")
            yield [Text(cell, style if i < 2 else "") for i, cell in enumerate(cells)]


def _line(text: str) -> str:
    return " ".join(text.split())
