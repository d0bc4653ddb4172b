import atexit
import tempfile
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import contract
import models
import pandas as pd
import pyterrier as pt
import pytest
import translation_models
from contract import Case, Trial
from engines import needs_java, question_table, start_java

from pyterrier_mart import (
    Analyzer,
    BM25Index,
    Hybrid,
    MARTReRanker,
    NeuralDocumentTranslator,
    NeuralQueryTranslator,
    PSQIndex,
    SMTQueryTranslator,
    TrainingOptions,
    TranslationTable,
    bm25_index,
    merge_languages,
    psq_index,
)
from pyterrier_mart.datasets import STS17, XQuADR
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.index import DenseIndex
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.retriever import MetaSBERTRetriever

GERMAN = XQuADR("de", "en")
TOPICS = GERMAN.get_topics().iloc[[0, 40, 500, 1189]].reset_index(drop=True)
QRELS = GERMAN.get_qrels().merge(TOPICS[["qid"]])

# A ranking that needs no engine: the judged document and one other for each topic.
RESULTS = pt.model.add_ranks(
    pd.concat([QRELS[["qid", "docno"]].assign(score=1.0), QRELS[["qid"]].assign(docno="en-007-01", score=2.0)])
    .merge(TOPICS, on="qid")
    .reset_index(drop=True)
)
FIRST_STAGE = pt.Transformer.from_df(RESULTS.drop(columns="query"))

# Paragraphs, as an engine indexes them faster than sentences.
PARAGRAPHS = XQuADR("de", "en", paragraphs=True)
PARAGRAPH_TOPICS = PARAGRAPHS.get_topics().iloc[[0, 40, 500, 1189]].reset_index(drop=True)
ENGLISH_TOPICS = PARAGRAPHS.get_topics("en").iloc[[0, 40, 500, 1189]].reset_index(drop=True)
PARAGRAPH_QRELS = PARAGRAPHS.get_qrels().merge(PARAGRAPH_TOPICS[["qid"]])
TABLE = question_table("de", "en")
OTHER_TABLE = TranslationTable.from_dict({"haus": {"house": 1.0}}, "de", "en")


@cache
def index(engine: str) -> BM25Index:
    """The paragraphs' index, built when first asked for."""
    folder = tempfile.TemporaryDirectory(prefix="test_contract-")
    atexit.register(folder.cleanup)
    return bm25_index(PARAGRAPHS, Path(folder.name) / "index", engine=engine, store_text=True, progress=False)


@cache
def psq() -> PSQIndex:
    """The paragraphs in the terms of German queries."""
    return psq_index(PARAGRAPHS, models.folder() / "psq", TABLE, engine="pisa", progress=False)


def stem(word: str) -> str:
    return word[:5]


def first_stages(engine: str):
    """Trials of BM25: the translated queries, the human translation and the untranslated queries."""
    texts = PARAGRAPHS.text_loader()
    return Trial(
        systems=lambda bm25: [
            SMTQueryTranslator(TABLE) >> bm25 % 100 >> texts,
            PARAGRAPHS.human_translation() >> bm25 % 100 >> texts,
            SMTQueryTranslator(TABLE, push=True) >> bm25 % 10,
            SMTQueryTranslator(TABLE) >> index(engine).bm25(k1=1.2, b=0.75),
        ],
        topics=PARAGRAPH_TOPICS,
        qrels=PARAGRAPH_QRELS,
    )


def translations(smt: pt.Transformer):
    """Systems that find the documents with PISA."""
    bm25, texts = index("pisa").bm25(), PARAGRAPHS.text_loader()
    return [smt >> bm25 % 100 >> texts, smt >> bm25 % 5, SMTQueryTranslator(TABLE, 1) >> bm25 % 100 >> texts]


def bm25_case(name: str, engine: str, rows: pd.DataFrame, **options) -> Case:
    return Case(
        name,
        lambda: index(engine).bm25(num_results=20),
        rows,
        others=(
            lambda: index(engine).bm25(),
            lambda: index(engine).bm25(num_results=20, k1=1.2),
            lambda: index(engine).bm25(num_results=20, b=0.75),
        ),
        row_wise=False,
        loaded=lambda bm25: bm25._searcher is not None,
        java=engine == "terrier",
        **options,
    )


SMT_TRIAL = Trial(systems=translations, topics=PARAGRAPH_TOPICS, qrels=PARAGRAPH_QRELS)

CASES = [
    Case(
        "text-loader",
        GERMAN.text_loader,
        RESULTS,
        others=(
            lambda: GERMAN.text_loader("text"),
            XQuADR("de", "en", paragraphs=True).text_loader,
            XQuADR("de", "es").text_loader,
        ),
        trial=Trial(
            systems=lambda loader: [FIRST_STAGE, FIRST_STAGE >> loader],
            topics=TOPICS,
            qrels=QRELS,
        ),
    ),
    Case(
        "text-loader-one-field",
        lambda: STS17("tr-en").text_loader(["text"]),
        STS17("tr-en").get_results().head(),
    ),
    Case(
        "text-loader-of-an-index",
        lambda: index("pisa").text_loader(),
        PARAGRAPH_QRELS[["qid", "docno"]].merge(PARAGRAPH_TOPICS).assign(score=1.0, rank=0),
    ),
    Case(
        "human-translation",
        GERMAN.human_translation,
        TOPICS,
        texts=("query",),
        others=(XQuADR("de", "es").human_translation, XQuADR("ru", "en").human_translation),
        trial=Trial(
            systems=lambda translation: [FIRST_STAGE, translation >> FIRST_STAGE],
            topics=TOPICS,
            qrels=QRELS,
        ),
    ),
    Case(
        "analyzer",
        lambda: Analyzer("de"),
        pd.DataFrame({"docno": ["d1", "d2", "d3"], "text": ["Die Straße zum Café", "", "1517, die Straße, die!"]}),
        texts=("text",),
        others=(
            lambda: Analyzer("en"),
            lambda: Analyzer("de", stop=True),
            lambda: Analyzer("de", stop=["die"]),
            lambda: Analyzer("de", fold=False),
            lambda: Analyzer("de", numbers=False),
        ),
    ),
    Case(
        "smt",
        lambda: SMTQueryTranslator(TABLE),
        TOPICS.assign(query_toks=[{"stale": 1.0}] * len(TOPICS)),
        texts=("query",),
        warns=True,
        others=(
            lambda: SMTQueryTranslator(OTHER_TABLE),
            lambda: SMTQueryTranslator(TABLE, 5),
            lambda: SMTQueryTranslator(TABLE, threshold=0.1),
            lambda: SMTQueryTranslator(TABLE, relate=False),
            lambda: SMTQueryTranslator(TABLE, stop=True),
            lambda: SMTQueryTranslator(TABLE, push=True),
        ),
        trial=SMT_TRIAL,
    ),
    Case(
        "smt-push",
        lambda: SMTQueryTranslator(TABLE, push=True, relate=False),
        TOPICS,
        texts=("query",),
        warns=True,
        others=(lambda: SMTQueryTranslator(TABLE, relate=False),),
        trial=SMT_TRIAL,
    ),
    Case(
        "smt-stemmer",
        lambda: SMTQueryTranslator(TABLE, stemmer=stem, stop=True),
        TOPICS,
        texts=("query",),
        warns=True,
        others=(lambda: SMTQueryTranslator(TABLE, stop=True),),
    ),
]


def neural(cls=NeuralQueryTranslator, **options):
    settings = {"source": "de", "target": "en", "max_length": 64, "device": "cpu"}
    return cls(translation_models.marian(), **{**settings, **options})


def neural_case(name: str, make, rows, texts, others) -> Case:
    trial = Trial(systems=lambda nmt: [FIRST_STAGE, nmt >> FIRST_STAGE], topics=TOPICS, qrels=QRELS)
    return Case(
        name,
        make,
        rows,
        texts=texts,
        others=others,
        loaded=lambda nmt: nmt._loaded is not None,
        warns=True,
        trial=trial if texts == ("query",) else None,
    )


QUESTIONS = TOPICS.assign(query=TOPICS["query"].str.slice(0, 30))
CASES += [
    neural_case(
        "neural",
        neural,
        QUESTIONS.assign(query_toks=[{"stale": 1.0}] * len(QUESTIONS)),
        ("query",),
        (
            lambda: neural(target="fr"),
            lambda: neural(source="es"),
            lambda: neural(n_best=2),
            lambda: neural(push=True),
            lambda: neural(beams=2),
            lambda: neural(max_length=32),
            lambda: neural(analyzer=Analyzer("en", stop=True)),
            lambda: neural(cache="translations.sqlite"),
            lambda: neural(dtype="bfloat16"),
        ),
    ),
    neural_case("neural-n-best", lambda: neural(n_best=3), QUESTIONS, ("query",), (neural,)),
    neural_case("neural-push", lambda: neural(push=True), QUESTIONS, ("query",), (neural,)),
    neural_case(
        "neural-documents",
        lambda: neural(NeuralDocumentTranslator),
        pd.DataFrame({"docno": ["d1", "d2", "d3"], "text": ["Die Straße. Das Haus!", "", "1517, die Straße, die!"]}),
        ("text",),
        (lambda: neural(NeuralDocumentTranslator, text_field="title"),),
    ),
]

MART_ROWS = GERMAN.text_loader()(RESULTS)


def mart(table=TABLE, **options):
    made = MARTReRanker(models.bert(), table, device="cpu", **options)
    made._warned = True  # that it is not trained
    return made


@cache
def trained() -> Path:
    """A re-ranker that was trained, if only for a step, and saved."""
    path = models.folder() / "contract"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mart(training=TrainingOptions(epochs=1, learning_rate=0.01)).fit(MART_ROWS, QRELS).save(path)
    return path


def rerankers(rank: pt.Transformer):
    return [FIRST_STAGE, FIRST_STAGE >> GERMAN.text_loader() >> rank, FIRST_STAGE % 1 >> GERMAN.text_loader() >> rank]


def mart_case(name: str, make, others=()) -> Case:
    return Case(
        name,
        make,
        MART_ROWS,
        texts=("query", "text"),
        others=others,
        loaded=lambda rank: rank._ready is not None,
        warns=True,
        trial=Trial(systems=rerankers, topics=TOPICS, qrels=QRELS),
    )


CASES += [
    mart_case(
        "mart",
        mart,
        others=(
            lambda: mart(OTHER_TABLE),
            lambda: MARTReRanker(models.bert(), TABLE, text_field="title"),
            lambda: mart(mat_layers=(-1,)),
            lambda: mart(mat_layers=()),
            lambda: mart(placebo=True),
            lambda: mart(pooling="pooler"),
            lambda: mart(translation_init="random"),
            lambda: mart(max_length=128),
            lambda: mart(document_tokens=100),
            lambda: mart(threshold=0.5),
            lambda: mart(top_k=1),
            lambda: mart(identity="always"),
            lambda: mart(relate=False),
            lambda: mart(stop=False),
            lambda: mart(stop=["im"]),
            lambda: mart(training=TrainingOptions(seed=1)),
            lambda: MARTReRanker.load(trained(), device="cpu"),
        ),
    ),
    mart_case("m2bert", lambda: mart(None, mat_layers=(), pooling="pooler")),
    mart_case("mart-plb", lambda: mart(None, placebo=True)),
    mart_case("mart-trained", lambda: MARTReRanker.load(trained(), device="cpu"), others=(mart,)),
]


def dense(model=None, **options):
    return MetaSBERTRetriever(model or models.bert(), **{"device": "cpu", **options})


@cache
def corpus() -> MultilingualCorpus:
    """Some sentences in two languages, and questions in both."""
    whole = MultilingualCorpus.xquad_r(("de", "en"))
    return whole.subset(whole.groups[:1])


@cache
def centring() -> LanguageCentering:
    return LanguageCentering.fit_corpus(dense(), corpus())


@cache
def vectors(centred: bool = False) -> DenseIndex:
    """The index of the corpus, built when first asked for."""
    return dense(post=centring() if centred else None).index(models.folder() / f"vectors-{centred}", corpus())


@cache
def learned() -> Path:
    """A retriever that was trained, if only for a step, and saved."""
    path, part = models.folder() / "learned", corpus()
    config = MetaConfig(transfer="en_en-en_de-en_de,en", k_shot=2, q_query=1, inner_steps=1, max_steps=1)
    dense(config=config, corpus=part, post=LanguageCentering()).fit(part.topics, part.qrels).save(path)
    return path


DENSE_TOPICS = corpus().topics[["qid", "query", "query_lang"]].iloc[[0, 3, 17, 40]].reset_index(drop=True)
DENSE_QRELS = corpus().qrels.merge(DENSE_TOPICS[["qid"]])
DENSE_ROWS = pt.model.add_ranks(
    DENSE_TOPICS.merge(corpus().docs[["docno", "text", "doc_lang"]].iloc[[0, 1, 5, -2, -1]], how="cross").assign(
        score=1.0
    )
)
DENSE_FIRST = pt.Transformer.from_df(DENSE_ROWS.drop(columns=["query", "query_lang"]))


def dense_case(name: str, make, others=(), texts=("query", "text"), rows=DENSE_ROWS, **options) -> Case:
    return Case(
        name,
        make,
        rows,
        texts=texts,
        others=others,
        loaded=lambda rank: rank._net is not None,
        warns=True,
        trial=Trial(
            systems=lambda rank: [DENSE_FIRST, DENSE_FIRST >> rank, DENSE_FIRST % 2 >> rank],
            topics=DENSE_TOPICS,
            qrels=DENSE_QRELS,
        ),
        **options,
    )


def found_by(full: pt.Transformer):
    return [full, full % 3, full.languages("de")]


DOC_COLUMNS = ["docno", "text", "doc_lang"]
VECTOR_TOPICS = dense().query_encoder()(DENSE_TOPICS)


def vectors_case(name: str, make, rows, texts) -> Case:
    return Case(name, make, rows, texts=texts, warns=True, loaded=lambda encoder: encoder.dense._net is not None)


CASES += [
    dense_case(
        "dense",
        dense,
        others=(
            lambda: dense(models.bert(0.2)),
            lambda: dense(dense_index=vectors()),
            lambda: dense(algorithm="maml"),
            lambda: dense(config=MetaConfig(max_length=(5, 5))),
            lambda: dense(post=centring()),
            lambda: dense(query_lang="de"),
            lambda: dense(doc_lang="de"),
            lambda: dense(num_results=3),
            lambda: dense(doc_langs=("de",)),
            lambda: dense(text_field="title"),
            lambda: MetaSBERTRetriever.load(learned(), device="cpu"),
        ),
    ),
    dense_case("dense-centred", lambda: dense(post=centring()), others=(dense,)),
    replace(
        dense_case("dense-learned", lambda: MetaSBERTRetriever.load(learned(), device="cpu"), others=(dense,)),
        loaded=None,  # it is when it was read from disk
    ),
    dense_case("dense-index-rerank", lambda: dense(dense_index=vectors())),
    dense_case(
        "dense-index-vectors",
        lambda: dense(dense_index=vectors()),
        rows=DENSE_ROWS.drop(columns="text"),
        texts=("query",),
    ),
    Case(
        "dense-index",
        lambda: dense(dense_index=vectors(True), post=centring(), num_results=20),
        DENSE_TOPICS,
        texts=("query",),
        others=(lambda: dense(dense_index=vectors(), num_results=20),),
        row_wise=False,
        loaded=lambda full: full._net is not None,
        warns=True,
        trial=Trial(systems=found_by, topics=DENSE_TOPICS, qrels=DENSE_QRELS),
    ),
    vectors_case("dense-query-vectors", lambda: dense(post=centring()).query_encoder(), DENSE_TOPICS, ("query",)),
    vectors_case("dense-doc-vectors", lambda: dense().doc_encoder(), corpus().docs[DOC_COLUMNS].head(4), ("text",)),
    Case("centring", lambda: centring().apply_attributes(), VECTOR_TOPICS, others=(LanguageCentering,)),
    Case(
        "dense-index-search",
        lambda: vectors().retriever(num_results=20),
        VECTOR_TOPICS,
        others=(lambda: vectors().retriever(num_results=3), lambda: vectors().retriever(doc_langs=["de"])),
        row_wise=False,
    ),
]


@cache
def sentences(lang: str = "") -> BM25Index:
    """The words of the corpus's sentences in one language, or in both as if they were English."""
    docs = corpus().docs if not lang else corpus().docs[corpus().docs["doc_lang"] == lang]
    return bm25_index(docs, models.folder() / f"words-{lang}", lang or "en", engine="pisa", progress=False)


def hybrid(**options):
    words = options.pop("words", None) or sentences().bm25(num_results=20)
    return Hybrid(words, options.pop("dense", None) or dense(dense_index=vectors()), **{"num_results": 20, **options})


def merger(**options):
    pipelines = {lang: sentences(lang).bm25(num_results=10) for lang in options.pop("languages", ("de", "en"))}
    return merge_languages(pipelines, **options)


CASES += [
    Case(
        "hybrid",
        hybrid,
        DENSE_TOPICS,
        texts=("query",),
        others=(
            lambda: hybrid(words=sentences().bm25(num_results=3)),
            lambda: hybrid(dense=dense(dense_index=vectors(), doc_langs=("de",))),
            lambda: hybrid(weight=1.0),
            lambda: hybrid(num_results=3),
        ),
        row_wise=False,
        loaded=lambda hybrid: hybrid.dense._net is not None,
        warns=True,
        trial=Trial(systems=lambda hybrid: [hybrid, hybrid % 3, hybrid.words], topics=DENSE_TOPICS, qrels=DENSE_QRELS),
    ),
    *(
        Case(
            f"merge-{how}",
            lambda how=how: merger(how=how),
            DENSE_TOPICS,
            texts=("query",),
            others=(
                lambda how=how: merger(how=how, num_results=3),
                lambda how=how: merger(how=how, languages=["de"]),
                lambda how=how: merger(how="rrf" if how == "score" else "score"),
            ),
            row_wise=False,
            warns=True,
            trial=Trial(
                systems=lambda merged: [merged, merged % 3, sentences("de").bm25()],
                topics=DENSE_TOPICS,
                qrels=DENSE_QRELS,
            ),
        )
        for how in ("score", "rrf", "round-robin")
    ),
]
for name, rows in (
    ("psq", PARAGRAPH_TOPICS),
    (
        "psq-toks",
        PARAGRAPH_TOPICS.assign(query_toks=[{"der": 1.0, word: 0.5} for word in ("stadt", "krieg", "x", "und")]),
    ),
):
    CASES.append(
        Case(
            name,
            lambda: psq().retriever(20),
            rows,
            texts=("query",) if name == "psq" else (),
            others=(lambda: psq().retriever(), lambda: psq().retriever(20, relate=False)),
            row_wise=False,
            loaded=lambda psq: psq._searcher is not None,
            trial=Trial(systems=lambda psq: [psq, psq % 3], topics=PARAGRAPH_TOPICS, qrels=PARAGRAPH_QRELS),
        )
    )
for engine in ("pisa", "terrier"):  # Terrier last: until then a case that starts the JVM is found out
    CASES.append(bm25_case(f"bm25-{engine}", engine, ENGLISH_TOPICS, texts=("query",), trial=first_stages(engine)))
    translated = SMTQueryTranslator(TABLE)(PARAGRAPH_TOPICS)
    CASES.append(bm25_case(f"bm25-{engine}-toks", engine, translated, trial=first_stages(engine)))


@pytest.mark.parametrize(
    ("function", "case"),
    [
        pytest.param(function, case, id=f"{case.name}-{function.__name__}", marks=needs_java if case.java else ())
        for case in CASES
        for function, applies in contract.CHECKS
        if applies(case)
    ],
)
def test_contract(function, case):
    if case.java:
        start_java()  # which may fetch Terrier, as no check may
    contract.run(function, case)
