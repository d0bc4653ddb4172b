import contract
import pandas as pd
import pyterrier as pt
import pytest
from contract import Case, Trial

from pyterrier_mart.datasets import STS17, XQuADR

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
]


@pytest.mark.parametrize(("function", "case"), contract.parameters(CASES))
def test_contract(function, case):
    contract.run(function, case)
