"""Every reader of the package on damaged files: what was there before, or an error that names the file."""

import ast
import contextlib
import gzip
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import damage
import models
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from engines import ENGINES
from packing import make_tar, make_zip

import pyterrier_mart
from pyterrier_mart import BM25Index, DenseIndex, LanguageCentering, MARTReRanker, TranslationTable, bm25_index
from pyterrier_mart.cli import inputs
from pyterrier_mart.cli.meta import read_config, read_fold
from pyterrier_mart.datasets import base, ciral, clef, paths
from pyterrier_mart.dense.index import Provenance
from pyterrier_mart.encoders import conversion
from pyterrier_mart.evaluation.crossval import cross_validate
from pyterrier_mart.evaluation.runs import read_run
from pyterrier_mart.mart.checkpoints import Checkpoints as MartCheckpoints
from pyterrier_mart.meta import MetaConfig, MetaSBERTRetriever
from pyterrier_mart.meta.checkpoints import Checkpoints as MetaCheckpoints
from pyterrier_mart.problems import Problems
from pyterrier_mart.store import DocumentStore, build_store
from pyterrier_mart.translation import formats, pairs
from pyterrier_mart.translation.neural.cache import TranslationCache
from pyterrier_mart.translation.neural.model import Hypothesis

PACKAGE = Path(pyterrier_mart.__file__).parent
SECONDS = 20  # longer is a hang
pytestmark = pytest.mark.usefixtures("one_thread")


class Reader(NamedTuple):
    """A reader of the package.

    Attributes:
        make: Writes a good input into an empty folder, and returns what is read.
        read: Returns what is in it, comparable; raises what a user would see.
        modules: The modules of the package that open files in it.
        files: Which files are damaged, as a pattern below the input. ``None``: the input itself.
        separator: What separates the cells of its lines.
        most: Maximum number of mutants of a file, if reading is slow.
        says: What errors may say in place of the name of the file, where that is of no use.
        valid: Mutants that are valid files of other content, as a regular expression for parts of their names.
        same: Whether what was read is what was there before.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    modules: str
    files: str | None = None
    separator: str = "\t"
    most: int | None = None
    says: str = ""
    valid: str = "^$"
    same: Callable[[Any, Any], bool] = lambda found, good: found == good


READERS: dict[str, Reader] = {}
FORMATS: set[str] = set()  # of translation tables


class DamageError(ValueError):
    """A reader told of damage in a list of problems, as those of test collections do."""


def told(problems: Problems, *others: str) -> None:
    """Raises what a list of problems says."""
    if problems.messages or others:
        raise DamageError("; ".join([*problems.messages, *others]))


# --------------------------------------------------------------------------------------------------- translation tables

ENTRIES = {
    "haus": {"house": 0.5, "home": 0.25}, "katze": {"cat": 0.75, "kitten": 0.125}, "straße": {"street": 0.5},
    "regen": {"rain": 0.625, "shower": 0.125}, "fluss": {"river": 1.0},
}  # fmt: skip
PAIRS = [(source, target, prob) for source, row in ENTRIES.items() for target, prob in row.items()]


def good_table() -> TranslationTable:
    return TranslationTable.from_dict(ENTRIES, "de", "en")


def entries_of(table) -> list[tuple[str, str, float]]:
    return sorted((s, t, round(float(p), 6)) for s, t, p in table.entries())


def table_file(name: str, text: str | bytes | None = None, of="columns", separator="\t", **options) -> None:
    """Registers a format of tables; without a text, a file that the format writes."""

    def make(folder: Path) -> Path:
        path = folder / name
        if text is None:
            good_table().write(path, format=options.get("format"))
        else:
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def read(path: Path) -> Any:
        return entries_of(TranslationTable.read(path, "de", "en", **options))

    FORMATS.add(options.get("format") or formats.guess(name))
    modules = f"translation.formats.common translation.formats.{of}"
    READERS[f"table {options.get('format') or name}"] = Reader(make, read, modules, separator=separator)


def listed(*columns: int, separator: str = "\t", header: str = "") -> str:
    lines = [separator.join(str(pair[column]) for column in columns) for pair in PAIRS]
    return "".join(f"{line}\n" for line in ([header] if header else []) + lines)


table_file("lex.f2e", of="columns", separator=" ")
table_file("de-en.actual.ti.final", separator=" ")
table_file("table.tsv")
table_file("table.csv", separator=",")
table_file("table.parquet")
table_file("export.tsv", listed(0, 1, 2, header="source\ttarget\tquality"), format="panlex")
table_file("table.json", of="psq")
table_file("de-en.txt", of="lists", separator=" ")
table_file("terms.tsv", listed(1, 0), of="lists", format="lexicon")
TEI = "".join(
    f"<entry><form><orth>{s}</orth></form><sense><cit type='trans'><quote>{t}</quote></cit></sense></entry>\n"
    for s, t, _ in PAIRS
)
table_file(
    "deu-eng.tei", f'<?xml version="1.0" encoding="UTF-8"?>\n<TEI><text><body>\n{TEI}</body></text></TEI>\n', of="tei"
)
DICT = "haus\nhouse, home\nkatze\ncat, kitten\nfluss\nriver\n"
INDEX = "fluss\tj\tM\nhaus\tA\tR\nkatze\tR\tS\n"
PACKED = lzma.compress(make_tar({"d/deu-eng.index": INDEX, "d/deu-eng.dict": DICT}))
table_file("freedict-deu-eng.tar.xz", PACKED, of="freedict")


def write_dictionary(folder: Path) -> Path:
    good_table().write(folder / "deu-eng.dict.dz", format="freedict")
    return folder


READERS["table freedict files"] = Reader(
    write_dictionary, lambda path: entries_of(TranslationTable.read(path / "deu-eng", "de", "en", format="freedict")),
    "translation.formats.freedict", "*",
)  # fmt: skip

PANLEX = {
    "langvar.csv": "id,lang_code,var_code\n1,deu,0\n2,eng,0\n",
    "expr.csv": "id,langvar,txt\n"
    + "".join(f"{10 + i},1,{s}\n" for i, s in enumerate(ENTRIES))
    + "".join(f"{20 + i},2,{t}\n" for i, (_, t, _) in enumerate(PAIRS)),
    "denotationx.csv": "meaning,source,grp,quality,expr\n"
    + "".join(
        f"{30 + i},5,5,{4 + i % 3},{expr}\n"
        for i, (s, _, _) in enumerate(PAIRS)
        for expr in (10 + [*ENTRIES].index(s), 20 + i)
    ),
}


def write_panlex(folder: Path) -> Path:
    for name, text in PANLEX.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def read_panlex(path: Path) -> Any:
    return entries_of(TranslationTable.read(path, "de", "en", format="panlex-dump"))


READERS["table panlex-dump"] = Reader(write_panlex, read_panlex, "translation.formats.panlex", "*.csv", ",", 30)
table_file("panlex.zip", make_zip(PANLEX), of="panlex", format="panlex-dump")
READERS["table panlex.zip"] = READERS["table panlex-dump"]._replace(
    make=lambda folder: folder / "panlex.zip" if (folder / "panlex.zip").write_bytes(make_zip(PANLEX)) else folder,
    files=None, most=None,
)  # fmt: skip


def write_vectors(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for lang, words in (("de", list(ENTRIES)), ("en", [t for _, t, _ in PAIRS])):
        rows = [f"{word} {' '.join(f'{x:.4f}' for x in rng.normal(size=6))}\n" for word in words]
        (folder / f"wiki.{lang}.vec").write_text(f"{len(rows)} 6\n{''.join(rows)}", encoding="utf-8")
    return folder


READERS["word vectors"] = Reader(
    write_vectors,
    lambda path: entries_of(TranslationTable.read_vectors(path / "wiki.de.vec", path / "wiki.en.vec", "de", "en")),
    "translation.formats.vectors", "*.vec", " ",
)  # fmt: skip

SENTENCES = [("die katze schläft", "the cat sleeps"), ("ein haus am fluss", "a house by the river")] * 4
TMX = "".join(
    f'<tu><tuv xml:lang="de"><seg>{s}</seg></tuv><tuv xml:lang="en"><seg>{t}</seg></tuv></tu>\n' for s, t in SENTENCES
)


def write_pairs(folder: Path) -> Path:
    for lang, side in (("de", 0), ("en", 1)):
        (folder / f"dev.{lang}").write_text("".join(f"{pair[side]}\n" for pair in SENTENCES), encoding="utf-8")
    return folder


def pairs_file(name: str, text: str | bytes, **options: Any) -> None:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return folder / name

    READERS[f"pairs {name}"] = Reader(make, lambda path: list(pairs.read_pairs(path, **options)), "translation.pairs")


READERS["pairs of two files"] = Reader(
    write_pairs, lambda path: list(pairs.read_pairs(path / "dev.de", path / "dev.en")), "translation.pairs", "*"
)
pairs_file("pairs.tsv", "".join(f"{s}\t{t}\n" for s, t in SENTENCES))
pairs_file("pairs.tmx", f"<?xml version='1.0'?>\n<tmx><body>\n{TMX}</body></tmx>\n", languages=("de", "en"))
SIDES = {f"d.{lang}": "".join(f"{pair[i]}\n" for pair in SENTENCES) for i, lang in enumerate(("de", "en"))}
pairs_file("pairs.zip", make_zip(SIDES), languages=("de", "en"))


def write_table(folder: Path) -> Path:
    good_table().save(folder / "saved.table")
    return folder / "saved.table"


READERS["saved table"] = Reader(
    write_table, lambda path: entries_of(TranslationTable.load(path)), "translation.storage artifact", "*", most=14
)


# ------------------------------------------------------------------------------------------------- test collections


def lines_read(path: Path, progress: Callable[[int], object], problems: Problems) -> Any:
    for line in path.read_text(encoding="utf-8").splitlines():
        docno, text = line.split("|")
        yield docno, {"text": text}


def write_store(folder: Path) -> Path:
    source = folder / "source.txt"
    source.write_text("".join(f"D{i}|{'text ' * 40}{i}\n" for i in range(60)), encoding="utf-8")
    build_store(folder / "news.store", [source], lines_read, fields=["text"])
    return folder / "news.store"


def read_store(path: Path) -> Any:
    store = DocumentStore(path)
    found = dict(store.items())
    assert len(store) == len(found), f"{path}: {len(store)} documents, but {len(found)} are found"
    return store.fields, [(docno, store[docno]["text"]) for docno in found]


def same_store(found: Any, good: Any) -> bool:
    """A text may have another letter: SQLite keeps no checksums, and a store is too large to be read whole."""
    return [found[0], *((d, len(t)) for d, t in found[1])] == [good[0], *((d, len(t)) for d, t in good[1])]


READERS["document store"] = Reader(write_store, read_store, "store", same=same_store)


def write_translations(folder: Path) -> Path:
    path = folder / "translations.sqlite"
    TranslationCache(path, "settings").add({source: [Hypothesis(target, prob)] for source, target, prob in PAIRS})
    return path


def read_translations(path: Path) -> Any:
    missing = {source: [(target, prob)] for source, target, prob in PAIRS}  # are translated again
    return missing | TranslationCache(path, "settings").find(missing)


READERS["translations"] = Reader(write_translations, read_translations, "translation.neural.cache")

NEWS = [
    ("SDA.940106.0001", "Die Katze", "Eine Katze schläft im Haus."),
    ("SDA.940106.0002", "Regen", "Am Fluss regnet es."),
]


def write_clef(folder: Path) -> Path:
    documents = "".join(
        f"<DOC>\n<DOCNO>{docno}</DOCNO>\n<TI>{title}</TI>\n<TX>{text}</TX>\n</DOC>\n" for docno, title, text in NEWS
    )
    topics = "".join(
        f"<topic lang='de'>\n<identifier>10.2452/{n}-AH</identifier>\n<title>{title}</title>\n"
        f"<description>{text}</description>\n</topic>\n"
        for n, (_, title, text) in zip((141, 142), NEWS, strict=True)
    )
    home = folder / "clef"
    home.mkdir()
    (home / "sda94.xml").write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{documents}', encoding="utf-8")
    (home / "topics.xml").write_text(f"<topics>\n{topics}</topics>\n", encoding="utf-8")
    (home / "topics.so.tsv").write_text("C141\tbisad\tbisad guriga\nC142\troob\troob webi\n", encoding="utf-8")
    (home / "qrels.txt").write_text(
        "".join(f"{n}-AH 0 {docno} {int(n == 141)}\n" for n in (141, 142) for docno, *_ in NEWS), encoding="utf-8"
    )
    return home


def read_clef(path: Path) -> Any:
    found = clef.scan(path)
    told(found.problems, *found.ignored_names)
    data = clef.CLEF("de", home=path, collections=["sda94"])
    store = data.documents()
    told(store.problems)
    return dict(store.items()), found.topics, found.judged


READERS["CLEF folder"] = Reader(
    write_clef,
    read_clef,
    "datasets.clef.catalogue datasets.clef.stores archives",
    "*",
    " ",
    30,
    valid="gone|folder|link|device|pipe|cell|Latin-1|surrogate",
)


def write_findings(folder: Path) -> Path:
    clef.scan(write_clef(folder))
    return folder


def damaged_findings(path: Path) -> Any:
    return {code: sorted(known) for code, known in clef.scan(path / "clef").topics.items()}


READERS["what was found in a CLEF folder"] = Reader(
    write_findings, damaged_findings, "datasets.clef.catalogue datasets.paths", "cache/clef/*/findings.json.gz"
)


def write_homes(folder: Path) -> Path:
    (folder / "clef").mkdir()
    paths.remember("clef", folder / "clef")
    return folder


def read_homes(path: Path) -> Any:
    return str(paths.home("clef", "CLEF_HOME"))


READERS["remembered folders"] = Reader(
    write_homes, read_homes, "datasets.paths", "home/pyterrier_mart/homes.json", says="is not known: run"
)

PASSAGES = [(f"RADIOMUQDISHO#{i}#0", "Warka", f"Waa maxay {word}") for i, word in enumerate(("bisad", "guri", "roob"))]


def ciral_file(name: str, text: str) -> None:
    def make(folder: Path) -> Path:
        (folder / "ciral").mkdir()
        (folder / "ciral" / name).write_text(text, encoding="utf-8")
        return folder / "ciral"

    def read(path: Path) -> Any:
        found = ciral.scan(path)
        if found.ignored:
            raise DamageError(str(found.ignored))
        store = ciral.open_store("so", found)
        told(store.problems)
        return dict(store.items())

    READERS[f"CIRAL {name}"] = Reader(make, read, "datasets.ciral.passages", "*")


ciral_file("somali.tsv", "".join("\t".join(passage) + "\n" for passage in PASSAGES))
ciral_file(
    "somali.jsonl", "".join(json.dumps({"docid": d, "title": t, "text": text}) + "\n" for d, t, text in PASSAGES)
)


def write_bundled(folder: Path) -> Path:
    path = folder / "data" / "ciral" / "so.topics.tsv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"1\tbisad waa maxay?\n2\troob?\n", mtime=0))
    return folder


def read_bundled(path: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base.resources, "files", lambda package: path)
        return base.read_data("ciral/so.topics.tsv.gz")


READERS["bundled data"] = Reader(write_bundled, read_bundled, "datasets.base", "data/*/*")


def write_bundled_table(folder: Path) -> Path:
    from pyterrier_mart.translation import storage

    (folder / "data").mkdir()
    made = good_table()
    packed = storage.pack(made.arrays, made.meta)
    (folder / "data" / f"de-en{storage.BUNDLED_SUFFIX}").write_bytes(packed)
    return folder


def read_bundled_table(path: Path) -> Any:
    from pyterrier_mart.translation import storage

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.resources, "files", lambda package: path)
        return entries_of(TranslationTable.load("de-en"))


READERS["bundled table"] = Reader(
    write_bundled_table, read_bundled_table, "translation.storage", "data/*", most=14, says="'de-en'"
)


# ------------------------------------------------------------------------------------------------- runs and commands


def write_run(folder: Path) -> Path:
    run = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "a"], "score": [2.5, 1.0, 0.5], "rank": [0, 1, 0]})
    pt.io.write_results(run, str(folder / "fold-0.res.gz"), run_name="mart")
    return folder / "fold-0.res.gz"


READERS["run"] = Reader(write_run, lambda path: read_run(path).values.tolist(), "evaluation.runs", separator=" ")


def plain_run(folder: Path) -> Path:
    path = write_run(folder)
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    return path.with_suffix("")


READERS["plain run"] = READERS["run"]._replace(make=plain_run)

TOPICS = pd.DataFrame({"qid": [str(i) for i in range(6)], "query": [f"query {i}" for i in range(6)]})
QRELS = pd.DataFrame({"qid": TOPICS["qid"], "docno": [f"d{i}" for i in range(6)], "label": [1] * 6})


class First(pt.Transformer):
    """Finds two documents of each query."""

    def transform(self, inp):
        rows = [{**row, "docno": f"d{n}", "score": -float(n)} for row in inp.to_dict("records") for n in (0, 1)]
        return pt.model.add_ranks(pd.DataFrame(rows))


def validate(path: Path) -> Any:
    found = cross_validate(First(), TOPICS, QRELS, folds=3, path=path)
    return {name: run.values.tolist() for name, run in found.runs.items()}


@cache
def validated() -> Path:
    validate(models.folder() / "validated")
    return models.folder() / "validated"


READERS["cross-validation"] = Reader(
    lambda folder: damage.copy(validated(), folder / "results"),
    validate,
    "evaluation.crossval",
    "**/*-0.*",
    " ",
    14,
    valid="gone|dangling",  # the fold is done again
)
READERS["plan of a cross-validation"] = READERS["cross-validation"]._replace(files="folds.json", most=30)

RUN = "".join(f"{qid} Q0 d{n} {n} {2.5 - n} bm25\n" for qid in ("q1", "q2") for n in range(3))
QUERIES = {"q1": "eine katze", "q2": "ein haus"}
TEXTS = {f"d{n}": f"text number {word}" for n, word in enumerate(("one", "two", "three"))}


def command_input(name: str, text: str, read: Callable[[Path], Any], separator: str = "\t") -> None:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    READERS[f"rerank {name}"] = Reader(make, read, "cli.inputs cli.rerank lines", separator=separator)


def documents_read(path: Path) -> Any:
    sys_rerank = sys.modules["pyterrier_mart.cli.rerank"]
    with contextlib.closing(sys_rerank.Texts()) as texts:
        texts.want([inputs.Row("q1", "", docno, 0, None) for docno in TEXTS])
        texts.fill(str(path), "error")
        return [texts.get(inputs.Row("q1", "", docno, 0, None)) for docno in TEXTS]


command_input("topics.tsv", "".join(f"{q}\t{t}\n" for q, t in QUERIES.items()), lambda p: inputs.read_topics(str(p)))
command_input("first.run", RUN, lambda path: list(inputs.read_queries(str(path), inputs.run_parser(QUERIES), 10)), " ")
command_input(
    "rows.tsv",
    "qid\tquery\tdocno\ttext\n" + "".join(f"q1\teine katze\t{d}\t{text}\n" for d, text in TEXTS.items()),
    lambda path: list(inputs.read_queries(str(path), inputs.rows_parser(), None)),
)
command_input("documents.tsv", "".join(f"{d}\t{text}\n" for d, text in TEXTS.items()), documents_read)
DOCUMENTS = [json.dumps({"docno": docno, "text": text}) + "\n" for docno, text in TEXTS.items()]
command_input("documents.jsonl", "".join(DOCUMENTS), documents_read)
command_input(
    "topics.jsonl",
    "".join(json.dumps({"qid": q, "query": t, "query_toks": {"cat": 0.5}}) + "\n" for q, t in QUERIES.items()),
    lambda path: inputs.topics_frame(str(path)).values.tolist(),
)


def indexed(path: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        index = bm25_index(path, Path(folder) / "index", "en", progress=False)
        return index.meta["docnos"], len(index)


READERS["indexed documents"] = Reader(
    lambda folder: READERS["rerank documents.jsonl"].make(folder), indexed, "retrieval.document_files", most=20
)


def write_corpus(folder: Path) -> Path:
    frames = {
        "topics.tsv": pd.DataFrame({"qid": [*QUERIES], "query": [*QUERIES.values()], "query_lang": "de"}),
        "docs.tsv": pd.DataFrame({"docno": [*TEXTS], "text": [*TEXTS.values()], "doc_lang": "en"}),
        "qrels.tsv": pd.DataFrame({"qid": [*QUERIES], "docno": ["d0", "d1"], "label": 1}),
    }
    for name, frame in frames.items():
        frame.to_csv(folder / name, sep="\t", index=False)
    return folder


def read_corpus(path: Path) -> Any:
    corpus = read_fold(str(path), None, None).train
    return [frame.values.tolist() for frame in (corpus.topics, corpus.docs, corpus.qrels)]


READERS["meta --data"] = Reader(write_corpus, read_corpus, "cli.meta", "*.tsv")


def write_config(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(MetaConfig(k_shot=3).as_json()), encoding="utf-8")
    return folder / "config.json"


READERS["meta --config"] = Reader(
    write_config, lambda path: read_config("paper", path, None).as_json(), "cli.meta meta.config", valid="empty object"
)


# --------------------------------------------------------------------------------------------------- indexes, models


def write_centring(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame({f"{side}_vec": list(rng.normal(size=(6, 4))), f"{side}_lang": ["de", "en"] * 3})
        for side in ("query", "doc")
    ]
    LanguageCentering().fit(*frames).save(folder / "means.safetensors")
    return folder / "means.safetensors"


def read_centring(path: Path) -> Any:
    return LanguageCentering.load(path).fingerprint


READERS["centring"] = Reader(write_centring, read_centring, "dense.centring")


def write_dense(folder: Path) -> Path:
    vectors = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    chunk = [f"doc-{i}" for i in range(20)], ["de", "en"] * 10, vectors
    DenseIndex.write(folder / "vectors", [chunk], Provenance("tiny", "abcdefgh"))
    return folder / "vectors"


def read_dense(path: Path) -> Any:
    index = DenseIndex(path)
    vectors = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
    found = index.retriever(num_results=20, device="cpu")(TOPICS.head(2).assign(query_vec=list(vectors)))
    return found.drop(columns=["query_vec", "score"]).astype(str).values.tolist(), found["score"].round(4).tolist()


READERS["dense index"] = Reader(write_dense, read_dense, "dense.index artifact", "**/*", most=25)


@cache
def saved_mart() -> Path:
    path = models.folder() / "saved-mart"
    MARTReRanker(models.bert(), good_table(), device="cpu").save(path)
    return path


def read_mart(path: Path) -> Any:
    made = MARTReRanker.load(path, device="cpu")
    tokenizer = made.loaded().tokenizer if hasattr(made.loaded(), "tokenizer") else made.loaded()[1]
    return made.weights, tokenizer("The house, by the river: 42!")["input_ids"], made.settings()


READERS["saved MARTReRanker"] = Reader(
    lambda folder: damage.copy(saved_mart(), folder / "mart"), read_mart, "mart.artifact artifact", "*", most=5
)


@cache
def saved_meta() -> Path:
    path = models.folder() / "saved-meta"
    MetaSBERTRetriever(models.bert(), device="cpu").save(path)
    return path


def read_meta(path: Path) -> Any:
    return MetaSBERTRetriever.load(path, device="cpu").encoder.encode(["a house"], "query").round(4).tolist()


READERS["saved MetaSBERTRetriever"] = Reader(
    lambda folder: damage.copy(saved_meta(), folder / "meta"), read_meta, "meta.artifact artifact", "**/*", most=4
)


class Net(torch.nn.Linear):
    """A small model."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        torch.nn.init.constant_(self.weight, 0.5)
        torch.nn.init.constant_(self.bias, 0.25)


KEY = {"fingerprint": "abc", "options": {"epochs": 3}}


def write_finished(folder: Path) -> Path:
    MartCheckpoints(folder / "out", KEY).finish(Net(), [{"epoch": 1.0, "loss": 0.5, "step": 4}])
    return folder / "out"


def read_finished(path: Path) -> Any:
    model = Net()
    torch.nn.init.zeros_(model.weight)
    found = MartCheckpoints(path, KEY)
    done = found.finished(model)
    # Without the record or the weights, training starts again.
    return {name: value.tolist() for name, value in model.state_dict().items()} if done else "trained again"


READERS["finished MART training"] = Reader(write_finished, read_finished, "mart.checkpoints", "*", valid="gone|link")


def write_checkpoint(folder: Path) -> Path:
    kept = MetaCheckpoints(folder / "out", {"algorithm": "maml"})
    kept.save({"step": 2, "best": 2, "log": [{"step": 2}], "stopped": ""}, Net().state_dict(), set())
    return folder / "out"


def read_checkpoint(path: Path) -> Any:
    kept = MetaCheckpoints(path, {"algorithm": "maml"})
    if kept.progress is None:
        return "trained again"
    return kept.progress, {name: value.tolist() for name, value in kept.load(kept.progress["step"]).items()}


READERS["checkpoints of meta-training"] = Reader(write_checkpoint, read_checkpoint, "meta.checkpoints", "[ms]*")


def tiny_encoder(folder: Path) -> conversion.PackagedEncoder:
    def write(encoder: Any, contents: Any, directory: Path) -> None:
        (directory / "weights.bin").write_bytes(contents["tiny/data.bin"])

    return conversion.PackagedEncoder(
        "tiny", "tiny", "1.0", "tiny", "MIT", {"tiny/data.bin": "0" * 64}, "", "", (), write
    )


def read_converted(path: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTERRIER_MART_CACHE", str(path / "cache"))
        patch.syspath_prepend(path / "site")
        return (conversion.converted(tiny_encoder(path)) / "weights.bin").read_bytes()


def write_converted(folder: Path) -> Path:
    info = folder / "site" / "tiny-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 2.0\n")
    (folder / "site" / "tiny").mkdir()
    (folder / "site" / "tiny" / "data.bin").write_bytes(bytes(range(256)))
    read_converted(folder)
    return folder


READERS["converted encoder"] = Reader(write_converted, read_converted, "encoders.conversion", "cache/encoders/*/*.*")


# ------------------------------------------------------------------------------------------------------- the check


class Hang(BaseException):
    """Reading takes too long."""


def stop(*_: Any) -> None:
    raise Hang


@contextlib.contextmanager
def surroundings(folder: Path):
    """Keeps stores and what is remembered in a folder."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("PYTERRIER_HOME", str(folder / "home"))
        patch.setenv("PYTERRIER_MART_CACHE", str(folder / "cache"))
        patch.delenv("CLEF_HOME", raising=False)
        patch.delenv("CIRAL_HOME", raising=False)
        yield


def fault(reader: Reader, path: Path, file: Path, good: Any, strict: bool) -> str | None:
    """Reads an input with a damaged file; returns what is wrong with the outcome, if anything is."""
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with damage.writers(path if file.is_relative_to(path) else file.parent):
            found = reader.read(path)
    except (ValueError, OSError) as err:
        message = str(err)
        if not any(known and known in message for known in (file.name, str(path), reader.says)):
            return f"{type(err).__name__} that does not name the file: {message:.300}"
        return f"a message of {len(message):,} characters" if len(message) > 3000 else None
    except Hang:
        return f"no end after {SECONDS} s"
    except Exception as err:
        return f"{type(err).__name__}: {err!s:.300}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return f"other values: {found!r:.300}" if strict and not reader.same(found, good) else None


def targets(reader: Reader, path: Path) -> list[Path]:
    """Returns the files to damage."""
    if reader.files is None:
        return [path]
    return sorted(file for file in path.glob(reader.files) if file.is_file() and file.suffix != ".lock")


@pytest.mark.parametrize("name", READERS)
def test_damage_is_noticed(name, tmp_path):
    reader = READERS[name]
    with surroundings(tmp_path / "good"):
        (tmp_path / "good").mkdir()
        whole = reader.make(tmp_path / "good")
        good = reader.read(whole)
        files = targets(reader, whole)
    assert files and good
    wrong, tried = [], 0
    for n, file in enumerate(files):
        for mutant in damage.mutants(file, separator=reader.separator, most=reader.most):
            if mutant.name == "empty pipe" and "cache" in file.relative_to(tmp_path).parts:
                continue  # it is written anew, and nobody reads the other end
            folder = tmp_path / f"{n}-{len(os.listdir(tmp_path))}"
            with surroundings(folder):
                folder.mkdir()
                path = reader.make(folder)
                target = targets(reader, path)[n]
                mutant.damage(target)
                strict = mutant.strict and not re.search(reader.valid, mutant.name)
                if found := fault(reader, path, target, good, strict):
                    wrong.append(f"{file.name}, {mutant.name}: {found}")
                tried += strict
    assert tried >= 10
    assert not wrong, "\n".join(wrong)


# --------------------------------------------------------------------------------------------- engines, which may abort


def write_engine(engine: str, folder: Path) -> Path:
    documents = [{"docno": f"doc{i}", "text": f"word{i % 7} other{i % 3} text number{i}"} for i in range(60)]
    bm25_index(documents, folder / "index", "en", engine=engine, store_text=True, progress=False)
    return folder / "index"


def search(path: Path) -> Any:
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["word3 other1", "text"]})
    index = BM25Index(path)
    found = (index.bm25(num_results=30) >> index.text_loader()).transform(topics)
    return sorted(found["docno"]), found["score"].round(3).tolist(), sorted(found["text"])


def search_all(engine: str, index: str, place: str, done: int) -> None:
    """Searches damaged copies of an index, after the first ones, and prints what is wrong, in a process of its own."""
    good, folder = Path(index), Path(place)
    reader = Reader(lambda folder: damage.copy(good, folder / "index"), search, "", "**/*")
    files = targets(reader, good)
    cases = [(n, mutant) for n, file in enumerate(files) for mutant in damage.mutants(file, most=3)]
    expected = search(good)
    for i, (n, mutant) in enumerate(cases[done:], start=done):
        name = f"{files[n].relative_to(good)}, {mutant.name}"
        print(json.dumps([i, len(cases), name]), flush=True)
        (folder / str(i)).mkdir()
        path = reader.make(folder / str(i))
        target = targets(reader, path)[n]
        mutant.damage(target)
        print(json.dumps(fault(reader, path, target, expected, mutant.strict)), flush=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_damaged_indexes_do_not_abort(engine, tmp_path):
    good = write_engine(engine, tmp_path)
    wrong, done, count = [], 0, 1
    while done < count:
        (tmp_path / f"from-{done}").mkdir()
        arguments = engine, str(good), str(tmp_path / f"from-{done}"), done
        command = [sys.executable, "-c", f"import test_damaged_files as tests; tests.search_all(*{arguments!r})"]
        ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=300)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith(("[", "null", '"'))]
        assert lines, ended.stderr[-2000:]
        begun, outcomes = lines[::2], lines[1::2]
        wrong += [f"{name}: {outcome}" for (_, _, name), outcome in zip(begun, outcomes, strict=False) if outcome]
        if len(begun) > len(outcomes):
            wrong.append(f"{begun[-1][2]}: the process ended with {ended.returncode}")
        done, count = begun[-1][0] + 1, begun[-1][1]
    assert count >= 10
    assert not wrong, "\n".join(wrong)


# ----------------------------------------------------------------------------------------------------- none is left out

#: Functions that open files.
OPENING = frozenset(
    "open open_binary members read_text read_bytes read_csv read_table read_parquet read_json read_meta open_memmap "
    "load_file safe_open connect from_pretrained load_from_json memmap fromfile FileIO Package".split()
)
#: Modules that open files, but none of a user's, or whose files are those of another reader.
OTHERS = {
    "files": "read_json is asked by the readers here", "artifact": "read_meta is too",
    "archives": "opens the files of the readers here",
    "mart.inference": "models as they are published", "mart.modeling": "the same", "cli.quickstart": "the same",
    "encoders.loading": "the same", "dense.encoder": "the same", "translation.neural.model": "the same",
    "encoders.minilm": "what a package holds, whose checksums are known: encoders.conversion",
    "translation.aligner_process": "reads what its aligner wrote", "cli.table.shared": "by the readers here",
    "retrieval.index": "test_damaged_indexes_do_not_abort", "retrieval.pisa": "the same",
    "retrieval.terrier": "the same", "retrieval.inversion": "reads what it wrote a moment ago",
    "retrieval.expectation": "the same", "retrieval.psq": "test_psq: files are compared with their checksums",
    "translation.align": "reads what its aligner wrote a moment ago",
    "datasets.xquad_r": "bundled: datasets.base", "datasets.sts17": "bundled: datasets.base",
}  # fmt: skip


def test_every_module_that_opens_files_has_a_reader_here():
    covered = {module for reader in READERS.values() for module in reader.modules.split()} | OTHERS.keys()
    opening = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                owner = getattr(getattr(node.func, "value", None), "id", "")
                if name in OPENING or (name == "load" and owner in ("np", "json", "torch")):
                    opening.setdefault(".".join(path.relative_to(PACKAGE).with_suffix("").parts), name)
    missing = {module: name for module, name in opening.items() if module not in covered}
    assert not missing, "modules that open files, and no test damages them"
    assert not set(formats.FORMATS) - FORMATS


def test_damage_is_the_same_every_time(tmp_path):
    (tmp_path / "a.tsv").write_text("source\ttarget\nhaus\thouse\n")
    made = []
    for name in ("b.tsv", "b.tsv"):
        contents = []
        for mutant in damage.mutants(tmp_path / "a.tsv"):
            (tmp_path / name).write_text("x")
            mutant.damage(tmp_path / name)
            kept = tmp_path / name
            contents.append((mutant.name, kept.read_bytes() if kept.is_file() else b""))
            kept.rmdir() if kept.is_dir() and not kept.is_symlink() else kept.unlink(missing_ok=True)
        made.append(contents)
    assert made[0] == made[1] and len(made[0]) > 30
