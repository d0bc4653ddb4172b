import socket
import subprocess
import sys

import ir_datasets
import pyterrier as pt
import pytest

import pyterrier_mart as mart
from pyterrier_mart.datasets.languages import Languages, languages_of


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    def connect(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


@pytest.mark.parametrize(
    ("name", "topics", "expected"),
    [
        ("mart:xquad-r/de-en", None, ("de", "en")),
        ("mart:xquad-r/de-en", "en", ("en", "en")),
        ("mart:xquad-r/zh/paragraphs", None, ("zh", "zh")),
        ("mart:sts17/tr-en", None, ("tr", "en")),
        ("mart:ciral/so", None, ("en", "so")),
        ("mart:ciral/so", "test-b/native", ("so", "so")),
        ("mart:clef/de-en", None, ("de", "en")),
        ("mart:clef/fr-en", "en/title", ("en", "en")),
        ("irds:neuclir/1/zh/trec-2022", None, ("en", "zh")),
        ("irds:neuclir/1/zh/trec-2022", "title", ("en", "zh")),
        ("irds:neuclir/1/zh/trec-2022", "ht_description", ("zh", "zh")),
        ("irds:neuclir/1/fa/trec-2023", "mt_title", ("fa", "fa")),
        ("neuclir/1/zh/hc4-filtered", None, ("en", "zh")),
        ("irds:hc4/fa/test", None, ("en", "fa")),
        ("irds:hc4/fa/test", "ht_title", ("fa", "fa")),
        ("irds:neumarco/ru/dev/judged", None, ("en", "ru")),
        ("irds:mmarco/v2/de/dev/small", None, ("de", "de")),
        ("irds:mmarco/v2/dt/dev", None, ("nl", "nl")),
        ("irds:wikiclir/sw", "title", ("en", "sw")),
        ("irds:wikiclir/nn", None, ("en", "nn")),
        ("irds:wikiclir/en-simple", None, ("en", "en")),
        ("irds:mr-tydi/sw/test", None, ("sw", "sw")),
        ("irds:miracl/yo/dev", None, ("yo", "yo")),
        ("irds:csl/trec-2023", "mt_title", ("zh", "zh")),
        ("irds:trec-mandarin/trec5", "title_en", ("en", "zh")),
        ("irds:trec-mandarin/trec5", "title_zh", ("zh", "zh")),
        ("irds:trec-spanish/trec4", "description_en2", ("en", "es")),
        ("irds:clirmatrix/sw/bi139-base/so/test1", None, ("so", "sw")),
        ("irds:clirmatrix/de/multi8/en/train", None, ("en", "de")),
        ("irds:vaswani", None, ("en", "en")),
        ("vaswani", None, ("en", "en")),
    ],
)
def test_languages(name, topics, expected):
    assert languages_of(name, topics) == expected


@pytest.mark.parametrize(
    ("name", "topics", "message"),
    [
        ("irds:neuclir/1/multi/trec-2023", None, r"language of the documents of irds:neuclir/1/multi/trec-2023 .*'en'"),
        ("irds:clirmatrix/de", None, r"language of the topics of irds:clirmatrix/de .*documents are in 'de'"),
        ("irds:aol-ia", None, r"language of the topics and documents of irds:aol-ia is not known"),
        ("irds:trec-mandarin/trec5", None, "several languages: say which, as topics='title_en'"),
        ("irds:hc4/fa/test", "text", r"has no topics 'text'; there are title, description"),
        ("irds:neumarco/zh", "text", r"has no topics 'text'; there are none"),
        ("irds:neuclir/1/de", None, r"ir_datasets has no 'neuclir/1/de'; did you mean neuclir/1 or neuclir/1/"),
        ("irds:clirmatrix/de/multi9/en/train", None, "ir_datasets has no"),
        ("mart:xquad-r/de-xx", None, "language must be one of ar, .*, not 'xx'.*Did you mean"),
        ("", None, "cannot tell languages: .*''"),
        ("nonsense", None, "nonsense"),
    ],
)
def test_unknown_languages(name, topics, message):
    with pytest.raises(ValueError, match=message):
        languages_of(name, topics)


def test_dataset_objects():
    assert languages_of(pt.get_dataset("mart:xquad-r/de-en")) == Languages("de", "en")
    assert languages_of(pt.get_dataset("mart:xquad-r/de-en"), "ru").query == "ru"
    assert languages_of(pt.get_dataset("irds:hc4/zh/dev")) == ("en", "zh")
    assert languages_of(ir_datasets.load("wikiclir/tr")) == ("en", "tr")
    assert languages_of(pt.get_dataset("vaswani")) == ("en", "en")


def test_own_datasets():
    class Own(pt.datasets.Dataset):
        def get_corpus_lang(self):
            return "swh"

        def get_topics_lang(self):
            return self.topics

    dataset = Own()
    dataset.topics = "deu"
    assert languages_of(dataset) == ("de", "sw")
    dataset.topics = None
    with pytest.raises(ValueError, match="language of the topics of .*; its documents are in 'sw'"):
        languages_of(dataset)


def test_every_dataset_of_ir_datasets_has_languages_or_says_what_is_known():
    known = unknown = 0
    for name in ir_datasets.registry:
        try:
            assert all(isinstance(code, str) and code.islower() for code in languages_of(f"irds:{name}"))
            known += 1
        except ValueError as err:
            assert name in str(err)
            unknown += 1
    assert known > 600 and unknown < known / 3


def test_top_level_name_is_light():
    assert mart.languages_of is languages_of
    code = "import sys, pyterrier_mart as m; m.languages_of; print(*({'torch', 'ir_datasets'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""
