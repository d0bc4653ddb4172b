"""Many languages in one ranking: ``python -m experiments.mlir``.

The sentences of XQuAD-R in Arabic, German, English, Spanish and Turkish in one pool, English questions: each has an
answer in every language. Systems: PSQ-HMM over one index, with a table for each language; bags of translated words in
an index for each language, merged; dense retrieval, as the encoder is and centred by language; PSQ-HMM and dense
together. Measured by AP@20, as in LAReQA, and by how much of the first 20 is in each language.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import pyterrier as pt
from ir_measures import AP, P, R

from experiments import report
from experiments.hybrid import Remembering, dense_index
from pyterrier_mart import (
    DenseIndex,
    Hybrid,
    LanguageCentering,
    MultilingualCorpus,
    SMTQueryTranslator,
    bm25_index,
    merge_languages,
    psq_index,
)
from pyterrier_mart.evaluation import paired_test

QUESTIONS = "en"
LANGUAGES = ("ar", "de", "en", "es", "tr")


def systems_of(corpus: MultilingualCorpus, encoder: str, keep: Path, tmp: Path, engine: str) -> dict[str, Any]:
    """Returns the systems by name."""
    options: dict[str, Any] = {"engine": engine, "progress": False}
    tables = {lang: None if lang == QUESTIONS else f"{QUESTIONS}-{lang}" for lang in corpus.doc_langs}
    bags = {}
    for lang, table in tables.items():
        documents = corpus.docs[corpus.docs["doc_lang"] == lang]
        bm25 = bm25_index(documents, tmp / lang, lang, **options).bm25()
        bags[lang] = bm25 if table is None else SMTQueryTranslator(table) >> bm25
    psq = psq_index(corpus.docs, tmp / "psq", tables, **options).retriever()
    content = psq_index(corpus.docs, tmp / "content", tables, stop=True, **options).retriever()
    dense = Remembering(encoder, query_lang=QUESTIONS)
    chunks = itertools.chain.from_iterable(dense_index(dense, lang, keep).chunks() for lang in corpus.doc_langs)
    index = DenseIndex.write(tmp / "dense", chunks, dense.provenance)
    centred = dense.apply_attributes(post=LanguageCentering.fit_corpus(dense, corpus, sample=200))
    plain, moved = dense.retriever(index), centred.retriever(centred.index(tmp / "centred", index))
    return {
        "PSQ-HMM, one index": psq,
        "PSQ-HMM, one index, no function words": content,
        **{f"SMT, {how}": merge_languages(bags, how) for how in ("score", "round-robin", "rrf")},
        "dense": plain,
        "dense, centred": moved,
        "PSQ-HMM + dense": Hybrid(psq, plain),
        "PSQ-HMM + dense, centred": Hybrid(psq, moved),
        "PSQ-HMM, no function words + dense, centred": Hybrid(content, moved),
    }


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="e5-small")
    parser.add_argument("--engine", default="auto", choices=["auto", "pisa", "terrier"])
    parser.add_argument("--keep", type=Path, help="folder where the sentences' vectors are kept")
    args = parser.parse_args()
    corpus = MultilingualCorpus.xquad_r(LANGUAGES)
    topics = corpus.topics[corpus.topics["query_lang"] == QUESTIONS][["qid", "query"]].reset_index(drop=True)
    qrels = corpus.qrels[corpus.qrels["qid"].isin(topics["qid"])].reset_index(drop=True)
    with tempfile.TemporaryDirectory() as tmp:
        runs = {}
        for name, system in systems_of(
            corpus, args.encoder, args.keep or Path(tmp), Path(tmp) / "x", args.engine
        ).items():
            runs[name] = system(topics).query("rank < 100").reset_index(drop=True)
            print(name, flush=True)
    measures = [AP @ 20, P @ 5, R @ 100]
    against = {
        name: pt.Experiment(
            runs, topics, qrels, measures, baseline=list(runs).index(name), test=paired_test()
        ).set_index("name")
        for name in ("PSQ-HMM, one index", "dense, centred")
    }  # fmt: skip
    means = next(iter(against.values()))
    languages = corpus.docs.set_index("docno")["doc_lang"]
    rows = []
    for name, run in runs.items():
        shares = run.loc[run["rank"] < 20, "docno"].map(languages).value_counts(normalize=True)
        p = [frame.loc[name, "AP@20 p-value"] for frame in against.values()]
        rows.append([name, *(float(means.loc[name, str(measure)]) for measure in measures),
                     *("" if x != x else f"{x:.1g}" for x in p),
                     *(f"{shares.get(lang, 0.0):.0%}" for lang in LANGUAGES)])  # fmt: skip
    pool = languages.value_counts(normalize=True)
    rows.append(["all documents", *[""] * 5, *(f"{pool[lang]:.0%}" for lang in LANGUAGES)])
    header = ["system", *map(str, measures), "p against PSQ-HMM", "p against dense, centred", *LANGUAGES]
    text = (
        f"{len(topics)} English questions, {len(corpus.docs)} sentences, of which one in each language is relevant. On "
        "the right the share of each language in the first 20 documents.\n\n"
    )
    settings = {"encoder": Path(args.encoder).name, "engine": args.engine, "BM25": "k1=0.9, b=0.4",
                "centring": "of 200 texts of each language and side", "retrieved": "1000 by words and by vectors",
                "test": "two-tailed paired t-test of AP@20, no correction"}  # fmt: skip
    title = "Many languages in one ranking: English questions, XQuAD-R sentences in five languages"
    report.write("mlir", title, [("", text + report.markdown(header, rows))], settings, rows)
    print((report.RESULTS / "mlir.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
