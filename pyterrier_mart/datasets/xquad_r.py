"""XQuAD-R: answer retrieval over parallel paragraphs and questions in eleven languages.

Besides the PyTerrier dataset :class:`XQuADR` there is :func:`load`, which gives one language as typed objects, for code
that builds its own tasks from articles, paragraphs, sentences and questions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import pandas as pd

from pyterrier_mart.datasets import translations
from pyterrier_mart.datasets.base import MartDataset, choose_language, read_data

LANGUAGES = ("ar", "de", "el", "en", "es", "hi", "ru", "th", "tr", "vi", "zh")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph and its sentences.

    Attributes:
        index: Position in the whole collection, the same for parallel paragraphs of all languages.
        article: Position of the article.
        title: English title of the article.
        context: The paragraph.
        sentences: The sentences of the paragraph without outer white space.
        breaks: Start and end of each sentence in ``context``, as published. In one Turkish paragraph two of them are
            off by one or two characters.
    """

    index: int
    article: int
    title: str
    context: str
    sentences: tuple[str, ...]
    breaks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Article:
    """An article.

    Attributes:
        index: Position in the collection.
        title: English title.
        paragraphs: The paragraphs.
    """

    index: int
    title: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question and where its answer is.

    Attributes:
        id: Identifier, the same for parallel questions of all languages.
        article: Position of the article.
        paragraph: Position of the paragraph in the whole collection.
        sentence: Position of the answer's sentence in the paragraph.
        text: The question.
        answer: The answer as it stands in the paragraph.
    """

    id: str
    article: int
    paragraph: int
    sentence: int
    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Collection:
    """XQuAD-R in one language.

    Attributes:
        language: ISO 639-1 code.
        articles: The articles.
        paragraphs: The paragraphs of all articles.
        questions: The questions, in the same order in every language.
    """

    language: str
    articles: tuple[Article, ...]
    paragraphs: tuple[Paragraph, ...]
    questions: tuple[Question, ...]


def load(language: str) -> Collection:
    """Returns XQuAD-R in one language. Each language is read once and kept.

    Example::

        collection = load('de')
        question = collection.questions[0]
        collection.paragraphs[question.paragraph].sentences[question.sentence]

    Args:
        language: Code of one of :data:`LANGUAGES`.

    Raises:
        ValueError: If XQuAD-R does not have the language.
    """
    return _load(choose_language(language, LANGUAGES))


@cache
def _load(language: str) -> Collection:
    articles: list[Article] = []
    paragraphs: list[Paragraph] = []
    questions: list[Question] = []
    for article, entry in enumerate(json.loads(read_data(f"xquad_r/{language}.json.gz"))["data"]):
        first = len(paragraphs)
        for source in entry["paragraphs"]:
            paragraph = Paragraph(
                index=len(paragraphs),
                article=article,
                title=entry["title"],
                context=source["context"],
                sentences=tuple(sentence.strip() for sentence in source["sentences"]),
                breaks=tuple((start, end) for start, end in source["sentence_breaks"]),
            )
            paragraphs.append(paragraph)
            questions.extend(_question(paragraph, qa["id"], qa["question"], **qa["answers"][0]) for qa in source["qas"])
        articles.append(Article(article, entry["title"], tuple(paragraphs[first:])))
    return Collection(language, tuple(articles), tuple(paragraphs), tuple(questions))


def _question(paragraph: Paragraph, id: str, question: str, answer_start: int, text: str) -> Question:
    # Some answers cross a break: where they begin decides, and exactly one sentence holds every answer's beginning.
    (sentence,) = (i for i, (start, end) in enumerate(paragraph.breaks) if start <= answer_start < end)
    return Question(id, paragraph.article, paragraph.index, sentence, question, text)


@cache
def _query_texts(language: str) -> Mapping[str, str]:
    return MappingProxyType({question.id: question.text for question in load(language).questions})


def _docno(language: str, paragraph: int, sentence: int | None = None) -> str:
    return f"{language}-{paragraph:03d}" if sentence is None else f"{language}-{paragraph:03d}-{sentence:02d}"


@cache
def _documents(language: str, paragraphs: bool) -> Mapping[str, Mapping[str, str]]:
    documents = {}
    for paragraph in load(language).paragraphs:
        if paragraphs:
            documents[_docno(language, paragraph.index)] = {"text": paragraph.context, "title": paragraph.title}
        else:
            for i, sentence in enumerate(paragraph.sentences):
                documents[_docno(language, paragraph.index, i)] = {
                    "text": sentence,
                    "title": paragraph.title,
                    "context": paragraph.context,
                }
    return MappingProxyType(documents)


class XQuADR(MartDataset):
    """XQuAD-R as a test collection: questions in one language, sentences or paragraphs in another.

    Every question has one relevant document: the sentence in which its answer begins, or the paragraph. A question
    keeps its ``qid`` in every variant, and parallel paragraphs have the same number in all languages. Sentences do not
    correspond one to one, because each language was split by itself.

    Example::

        data = pt.get_dataset('mart:xquad-r/de-en')          # German questions, English sentences
        data = pt.get_dataset('mart:xquad-r/de-en/paragraphs')
        data.get_topics()                                    # the questions in German
        data.get_topics('en')                                # the same qids, asked in English

    .. cite:: lareqa
        :citation: Roy et al. LAReQA: Language-Agnostic Answer Retrieval from a Multilingual Pool. EMNLP 2020.
        :link: https://aclanthology.org/2020.emnlp-main.477/

    .. cite:: xquad
        :citation: Artetxe et al. On the Cross-lingual Transferability of Monolingual Representations. ACL 2020.
        :link: https://aclanthology.org/2020.acl-main.421/
    """

    licence = "CC BY-SA 4.0"
    citation = """\
@inproceedings{roy-etal-2020-lareqa,
  title     = {{LAReQA}: Language-Agnostic Answer Retrieval from a Multilingual Pool},
  author    = {Roy, Uma and Constant, Noah and Al-Rfou, Rami and Barua, Aditya and Phillips, Aaron and Yang, Yinfei},
  booktitle = {Proceedings of the 2020 Conference on Empirical Methods in Natural Language Processing},
  pages     = {5919--5930},
  year      = {2020},
  doi       = {10.18653/v1/2020.emnlp-main.477},
}
@inproceedings{artetxe-etal-2020-cross,
  title     = {On the Cross-lingual Transferability of Monolingual Representations},
  author    = {Artetxe, Mikel and Ruder, Sebastian and Yogatama, Dani},
  booktitle = {Proceedings of the 58th Annual Meeting of the Association for Computational Linguistics},
  pages     = {4623--4637},
  year      = {2020},
  doi       = {10.18653/v1/2020.acl-main.421},
}
"""
    naming = (
        "XQuAD-R datasets are called xquad-r/{questions}-{documents} or xquad-r/{language}, with /paragraphs after it "
        f"for paragraphs in place of sentences; the languages are {', '.join(LANGUAGES)}."
    )
    _url = "https://github.com/google-research-datasets/lareqa"

    def __init__(self, question_language: str, document_language: str | None = None, *, paragraphs: bool = False):
        """Creates the dataset.

        Args:
            question_language: Code of one of :data:`LANGUAGES`.
            document_language: Code of another one, or None for the language of the questions.
            paragraphs: Whether documents are paragraphs. They are sentences otherwise.

        Raises:
            ValueError: If XQuAD-R does not have a language.
        """
        questions = choose_language(question_language, LANGUAGES)
        documents = choose_language(document_language, LANGUAGES) if document_language is not None else questions
        name = f"xquad-r/{questions}" + f"-{documents}" * (documents != questions) + "/paragraphs" * paragraphs
        fields = ("text", "title") if paragraphs else ("text", "title", "context")
        super().__init__(name, (questions, documents), fields)
        self.paragraphs = paragraphs

    @property
    def corpus_name(self) -> str:
        """What the documents are called, whichever language the questions are in: one index serves all of them."""
        return f"mart:xquad-r/{self.languages[1]}" + "/paragraphs" * self.paragraphs

    @classmethod
    def from_name(cls, name: str) -> XQuADR:
        """Returns the dataset that a name stands for.

        Raises:
            ValueError: If there is no such dataset.
        """
        match = re.fullmatch(r"xquad-r/(\w+)(?:-(\w+))?(/paragraphs)?", name)
        if match is None:
            raise ValueError(cls.naming)
        return cls(match[1], match[2], paragraphs=match[3] is not None)

    @staticmethod
    def list_names() -> Iterator[str]:
        """Gives the names of all datasets, one name each."""
        for unit in ("", "/paragraphs"):
            for questions in LANGUAGES:
                yield f"xquad-r/{questions}{unit}"
                yield from (f"xquad-r/{questions}-{other}{unit}" for other in LANGUAGES if other != questions)

    def documents(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the fields of every document by document number, in corpus order."""
        return _documents(self.languages[1], self.paragraphs)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the questions, as ``qid`` and ``query``.

        Args:
            variant: Code of a language to ask the same questions in, with the same qids: a translation by humans.
                By default the questions are in the language of the topics.

        Raises:
            ValueError: If XQuAD-R does not have the language.
        """
        texts = _query_texts(self.languages[0] if variant is None else choose_language(variant, LANGUAGES))
        return pd.DataFrame({"qid": [self._qid(id) for id in texts], "query": list(texts.values())})

    def articles(self) -> pd.Series:
        """Returns the number of the article that each question is about, by qid.

        Questions about one article share documents and words: keep them together when splitting into folds.
        """
        questions = load(self.languages[0]).questions
        return pd.Series({self._qid(question.id): question.article for question in questions}, name="article")

    def groups(self) -> pd.Series:
        """Returns :meth:`articles`: questions about one article stay together in cross-validation."""
        return self.articles()

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the judgments, as ``qid``, ``docno`` and ``label``: one relevant document for each question.

        Args:
            variant: As in :meth:`get_topics`; the judgments are the same in all variants.

        Raises:
            ValueError: If XQuAD-R does not have the language.
        """
        if variant is not None:
            choose_language(variant, LANGUAGES)
        language = self.languages[1]
        questions = load(language).questions
        return pd.DataFrame(
            {
                "qid": [self._qid(question.id) for question in questions],
                "docno": [_docno(language, q.paragraph, None if self.paragraphs else q.sentence) for q in questions],
                "label": 1,
            }
        )

    def human_translation(self) -> HumanTranslation:
        """Returns a transformer that asks each question in the language of the documents."""
        return HumanTranslation(*self.languages)

    def _qid(self, question_id: str) -> str:
        return f"{self.languages[0]}-{question_id}"

    def _describe_component(self, component: str) -> bool | list[str] | None:
        return list(LANGUAGES) if component == "topics" else super()._describe_component(component)


class HumanTranslation(translations.HumanTranslation):
    """Replaces XQuAD-R questions by the same questions in another language, as humans translated them.

    Questions are found by ``qid``, and what was asked before moves to ``query_0``.

    Example::

        data = pt.get_dataset('mart:xquad-r/de-en')
        pipeline = data.human_translation() >> bm25
    """

    def __init__(self, source: str, target: str):
        """Creates the transformer.

        Args:
            source: Code of the language of the topics, which their qids begin with.
            target: Code of the language to ask in.

        Raises:
            ValueError: If XQuAD-R does not have a language.
        """
        dataset = XQuADR(source, target)
        self.source, self.target = dataset.languages
        super().__init__(dataset, self.target, topic=f"an XQuAD-R question in {self.source!r}")

    def __repr__(self) -> str:
        return f"HumanTranslation({self.source!r}, {self.target!r})"
