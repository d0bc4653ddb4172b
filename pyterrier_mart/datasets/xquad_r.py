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

import pandas as pd

from pyterrier_mart.datasets.base import MartDataset, choose_language, read_data
from pyterrier_mart.datasets.translations import HumanTranslation

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


@cache
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
    language = choose_language(language, LANGUAGES)
    articles: list[Article] = []
    paragraphs: list[Paragraph] = []
    questions: list[Question] = []
    for article, entry in enumerate(json.loads(read_data(f"xquad_r/{language}.json.gz"))["data"]):
        first = len(paragraphs)
        for source in entry["paragraphs"]:
            index = len(paragraphs)
            sentences = tuple(sentence.strip() for sentence in source["sentences"])
            breaks = tuple((start, end) for start, end in source["sentence_breaks"])
            paragraphs.append(Paragraph(index, article, entry["title"], source["context"], sentences, breaks))
            for qa in source["qas"]:
                answer = qa["answers"][0]
                # Some answers cross a break: where they begin decides, in exactly one sentence.
                (place,) = (i for i, (start, end) in enumerate(breaks) if start <= answer["answer_start"] < end)
                questions.append(Question(qa["id"], article, index, place, qa["question"], answer["text"]))
        articles.append(Article(article, entry["title"], tuple(paragraphs[first:])))
    return Collection(language, tuple(articles), tuple(paragraphs), tuple(questions))


@cache
def documents_of(language: str, paragraphs: bool) -> Mapping[str, Mapping[str, str]]:
    """Returns the fields of the sentences or paragraphs in one language by docno."""
    documents = {}
    for paragraph in load(language).paragraphs:
        docno = f"{language}-{paragraph.index:03d}"
        if paragraphs:
            documents[docno] = {"text": paragraph.context, "title": paragraph.title}
        else:
            fields = {"title": paragraph.title, "context": paragraph.context}
            for i, sentence in enumerate(paragraph.sentences):
                documents[f"{docno}-{i:02d}"] = {"text": sentence, **fields}
    return documents


class XQuADR(MartDataset):
    """XQuAD-R as a test collection: questions in one language, sentences or paragraphs in another.

    Every question has one relevant document: the sentence in which its answer begins, or the paragraph. A question
    keeps its ``qid`` in every variant; the docnos of parallel paragraphs differ by the language alone. Sentences do not
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
        unit = "/paragraphs" * paragraphs
        fields = ("text", "title") if paragraphs else ("text", "title", "context")
        name = f"xquad-r/{questions}" + f"-{documents}" * (documents != questions) + unit
        super().__init__(name, (questions, documents), fields, corpus_name=f"mart:xquad-r/{documents}{unit}")
        self.paragraphs = paragraphs

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
        """Returns the fields of every document by docno, in corpus order."""
        return documents_of(self.languages[1], self.paragraphs)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the questions, as ``qid`` and ``query``.

        Args:
            variant: Code of a language to ask the same questions in, with the same qids: a translation by humans.
                By default the questions are in the language of the topics.

        Raises:
            ValueError: If XQuAD-R does not have the language.
        """
        questions = load(self.languages[0] if variant is None else variant).questions
        qids = [self._qid(question) for question in questions]
        return pd.DataFrame({"qid": qids, "query": [question.text for question in questions]})

    def articles(self) -> pd.Series:
        """Returns the position of the article that each question is about, by qid.

        Questions about one article share documents and words: keep them together when splitting into folds.
        """
        questions = load(self.languages[0]).questions
        return pd.Series({self._qid(question): question.article for question in questions}, name="article")

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
        rows = []
        for question in load(language).questions:
            sentence = "" if self.paragraphs else f"-{question.sentence:02d}"
            rows.append((self._qid(question), f"{language}-{question.paragraph:03d}{sentence}", 1))
        return pd.DataFrame(rows, columns=["qid", "docno", "label"])

    def human_translation(self) -> HumanTranslation:
        """Returns a transformer that asks each question in the language of the documents."""
        return HumanTranslation(self, self.languages[1])

    def _qid(self, question: Question) -> str:
        return f"{self.languages[0]}-{question.id}"

    def _describe_component(self, component: str) -> bool | list[str] | None:
        return list(LANGUAGES) if component == "topics" else super()._describe_component(component)
