"""Neural translators: languages of each family, batches, weights by hand, long texts, the cache, what is refused."""

import shutil
import sqlite3
import warnings

import pandas as pd
import pyterrier as pt
import pytest
import torch
import translation_models as tiny
from pyterrier_caching import KeyValueCache
from transformers import AutoModelForSeq2SeqLM

from pyterrier_mart import Analyzer, NeuralDocumentTranslator, NeuralQueryTranslator, bm25_index
from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.text import LANGUAGES
from pyterrier_mart.translation.neural.languages import own_code
from pyterrier_mart.translation.neural.model import TranslationModel
from pyterrier_mart.translation.neural.sentences import parts, sentences

pytestmark = [
    pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:.*did not end within:UserWarning"),
]  # fmt: skip

QUERIES = XQuADR("de", "en").get_topics()["query"].str.slice(0, 12).tolist()[:3]
GERMAN = [german for german, _, _ in tiny.WORDS]
MODELS = {
    "marian": tiny.marian,
    "marian-many": lambda: tiny.marian("eng", "cmn_Hans", "cmn_Hant", pair="de-mul"),
    "m2m100": tiny.m2m100,
    "nllb": tiny.nllb,
    "madlad": tiny.madlad,
}


def neural(model, target="en", cls=NeuralQueryTranslator, **options):
    return cls(model, source="de", target=target, device="cpu", **{"max_length": 16, **options})


def flat(hypotheses):
    return [[(text, pytest.approx(weight, abs=1e-4)) for text, weight in found] for found, _ in hypotheses]


# --------------------------------------------------------------------------------------------------------- translations


@pytest.mark.parametrize(("lang", "column"), [("en", 1), ("fr", 2)])
def test_a_model_that_learned_words_translates_them(lang, column):
    assert neural(tiny.learned(), lang).translate(GERMAN) == [words[column] for words in tiny.WORDS]


def test_from_german_queries_to_english_documents(tmp_path):
    documents = [{"docno": english, "text": f"The {english}."} for _, english, _ in tiny.WORDS]
    bm25 = bm25_index(documents, tmp_path / "en.index", "en", progress=False).bm25()
    topics = pd.DataFrame({"qid": GERMAN, "query": [f"{word}?" for word in GERMAN]})
    for options in ({}, {"n_best": 4}, {"push": True}):
        found = (neural(tiny.learned(), **options) >> bm25)(topics)
        best = found[found["rank"] == 0].set_index("qid")["docno"]
        assert best.to_dict() == {german: english for german, english, _ in tiny.WORDS}


def test_german_documents_for_english_queries(tmp_path):
    translate = neural(tiny.learned(), cls=NeuralDocumentTranslator)
    documents = [{"docno": word, "text": f"{word}! {word}?", "title": word} for word in GERMAN]
    made = list(translate(iter(documents)))
    assert made[0] == {"docno": "Katze", "text": "cat cat", "title": "Katze", "text_0": "Katze! Katze?"}
    for n, given in enumerate((iter(made), translate(iter(documents)))):
        bm25 = bm25_index(given, tmp_path / f"{n}.index", "en", progress=False).bm25()
        assert bm25.search("the cat")["docno"].tolist() == ["Katze"]

    class Indexer(pt.Indexer):
        def index(self, inp):
            return list(inp)

    assert (translate >> Indexer()).index(documents) == made
    frame = pd.DataFrame(documents).assign(doc_lang="de")
    assert translate(frame)["text"].tolist() == [row["text"] for row in made]
    assert set(translate(frame)["doc_lang"]) == {"en"}


@pytest.mark.parametrize("name", MODELS)
def test_batches_give_what_single_sentences_do(name):
    translator = neural(MODELS[name](), batch_tokens=30)
    together = translator.hypotheses(QUERIES, 3)
    for query, found in zip(QUERIES, together, strict=True):
        assert flat(translator.hypotheses([query], 3)[0]) == flat(found)
    assert translator.hypotheses(QUERIES * 2, 3)[len(QUERIES) :] == together


@pytest.mark.parametrize("name", MODELS)
def test_translations_are_what_transformers_generates(name):
    model = neural(MODELS[name](), n_best=3).loaded()
    prefix, forced = {
        "marian": ("", None), "marian-many": (">>eng<< ", None), "m2m100": ("", "__en__"), "nllb": ("", "eng_Latn"),
        "madlad": ("<2en> ", None),
    }[name]  # fmt: skip
    tokenizer, net = model.tokenizer, AutoModelForSeq2SeqLM.from_pretrained(MODELS[name](), use_safetensors=True)
    net.generation_config.forced_eos_token_id = None
    inputs = tokenizer(prefix + QUERIES[0], return_tensors="pt")
    language = {"m2m100": "__de__", "nllb": "deu_Latn"}.get(name, prefix.strip())
    assert not language or tokenizer.convert_tokens_to_ids(language) in inputs["input_ids"][0].tolist()[:2]
    begins = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(forced)} if forced else {}
    out = net.eval().generate(
        **inputs, num_beams=4, num_return_sequences=3, max_new_tokens=31,
        return_dict_in_generate=True, output_scores=True, **begins,
    )  # fmt: skip
    texts = tokenizer.batch_decode(out.sequences[:, 2 if forced else 1 :], skip_special_tokens=True)
    (found,) = list(model.translate(QUERIES[:1], 3))[0].values()
    assert [text for text, _ in found] == [text.strip() for text in texts]
    weights = torch.softmax(out.sequences_scores, 0).tolist()
    assert [weight for _, weight in found] == pytest.approx(weights, abs=1e-4)


def test_weights_are_expected_frequencies(monkeypatch):
    said = {
        "Wo?": [("where, where is", 0.5), ("Where", 0.25), ("at", 0.25)],
        "Wer?": [("who", 1.0), ("", 0.0), ("", 0.0)],
    }
    monkeypatch.setattr(TranslationModel, "translate", lambda self, new, n: [{text: said[text] for text in new}])
    translator = neural(tiny.marian(), n_best=3)
    first, second = translator.bags(["Wo? Wer?", "Wer?"])
    assert list(first.items()) == [("where", 1.25), ("who", 1.0), ("is", 0.5), ("at", 0.25)]
    assert second == {"who": 1.0} and second.spec == Analyzer("en").spec and second.query == "Wer?"


def test_columns():
    rows = pd.DataFrame({"qid": ["1"], "query": ["Katze"], "query_toks": [{"old": 1.0}], "query_lang": ["de"]})
    out = neural(tiny.learned())(rows)
    assert out["query"].tolist() == ["Katze"] and "cat" in out["query_toks"][0] and out["query_lang"][0] == "de"
    out = neural(tiny.learned(), push=True)(rows)
    assert out[["query", "query_0", "query_lang"]].values.tolist() == [["cat", "Katze", "en"]]
    assert "query_toks" not in out
    out = neural(tiny.learned(), cls=NeuralDocumentTranslator, text_field="title")(pd.DataFrame({"title": ["Haus"]}))
    assert out.to_dict("records") == [{"title": "house", "title_0": "Haus"}]


# ------------------------------------------------------------------------------------------------------------ sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Am 3. Mai kam Dr. Frank. Dann ging er! Wohin?", ["Am 3. Mai kam Dr. Frank.", "Dann ging er!", "Wohin?"]),
        ("Er sagte „Nein!“ Und ging.", ["Er sagte „Nein!“", "Und ging."]),
        ("Sie rief usw. und lief. Ende", ["Sie rief usw. und lief.", "Ende"]),
        ("水在哪里？房子在这里。", ["水在哪里？", "房子在这里。"]),
        ("यह घर है। वह पानी है।", ["यह घर है।", "वह पानी है।"]),
        ("این خانه است؟ آن آب است.", ["این خانه است؟", "آن آب است."]),
        ("Titel\n\n  eins\nzwei ", ["Titel", "eins", "zwei"]),
        (" \n ", []),
    ],
)  # fmt: skip
def test_sentences(text, expected):
    found = list(sentences(text))
    assert [sentence for sentence, _ in found] == expected
    assert "".join(sentence + space for sentence, space in found).split() == " ".join(expected).split()


@pytest.mark.parametrize("language", ["ar", "de", "en", "es", "hi", "ru", "tr", "vi", "zh"])
def test_sentences_are_nearly_those_of_the_dataset(language):
    own, found = {}, 0
    for document in XQuADR("de", language).get_corpus_iter(verbose=False):
        own.setdefault(document["context"], set()).add(document["text"].strip())
    same = 0
    for paragraph, expected in own.items():
        split = [sentence for sentence, _ in sentences(paragraph)]
        same, found = same + len(expected.intersection(split)), found + len(split)
    assert same / found > 0.85 and same / sum(map(len, own.values())) > 0.85


def test_nothing_of_real_documents_is_lost():
    for language in ("de", "ar", "zh", "hi", "th", "ru"):
        for document in XQuADR(language, language, paragraphs=True).get_corpus_iter(verbose=False):
            made = "".join(part + " " for sentence, _ in sentences(document["text"]) for part in parts(sentence, short))
            assert "".join(made.split()) == "".join(document["text"].split())


def short(text):
    return len(text) <= 50


def test_long_sentences_are_translated_in_parts():
    translator = neural(tiny.marian(), cls=NeuralDocumentTranslator)
    long = ", ".join(GERMAN * 3) + "?"
    with pytest.warns(UserWarning, match=r"1 of 2 sentences are longer than max_length=16 tokens, and translated in"):
        (found,) = translator.hypotheses([long + " Wo?"])
    pieces = translator.pieces(long)
    assert len(pieces) > 3 and len(found) == len(pieces) + 1 and " ".join(pieces) == long
    assert all(len(ids) <= 16 for ids in translator.loaded().encode(pieces))


@pytest.mark.filterwarnings("default")
def test_translations_that_do_not_end_are_counted():
    with pytest.warns(UserWarning, match="2 of 2 translations did not end within 31 tokens and are cut off there"):
        neural(tiny.m2m100()).translate(["Katze", "Haus"])


# ------------------------------------------------------------------------------------------------------------ languages


@pytest.mark.parametrize(
    ("model", "target", "direction"),
    [
        ("marian-many", "zh", (">>cmn_Hans<< ", None, None)),
        ("marian-many", "cmn_Hant", (">>cmn_Hant<< ", None, None)),
        ("m2m100", "zho", ("", "de", "__zh__")),
        ("nllb", "zh", ("", "deu_Latn", "zho_Hans")),
        ("nllb", "zho_Hant", ("", "deu_Latn", "zho_Hant")),
        ("nllb", "ben_Beng", ("", "deu_Latn", "ben_Beng")),
        ("madlad", "zh", ("<2zh> ", None, None)),
        ("madlad", "zh_Latn", ("<2zh_Latn> ", None, None)),
    ],
)
def test_languages(model, target, direction):
    assert neural(MODELS[model](), target, push=True).loaded().direction == direction


def test_nllb_and_m2m100_have_the_languages_of_the_package():
    nllb, m2m100 = neural(tiny.nllb()).loaded().tokenizer, neural(tiny.m2m100()).loaded().tokenizer
    codes = dict.fromkeys(token for token in nllb.get_vocab() if "_" in token)
    found = {language: own_code(language, codes) for language in LANGUAGES}
    assert None not in found.values() and len(set(found.values())) == len(LANGUAGES)
    expected = {
        "ar": "arb_Arab",
        "fa": "pes_Arab",
        "no": "nob_Latn",
        "sw": "swh_Latn",
        "zh": "zho_Hans",
        "et": "est_Latn",
    }
    assert expected.items() <= found.items()
    assert all(own_code(language, m2m100.lang_code_to_id) == language for language in LANGUAGES)


@pytest.mark.parametrize(
    ("model", "source", "target", "message"),
    [
        ("marian", "en", "de", "translates from de, not from en"),
        ("marian", "de", "fr", "translates to en, not to fr"),
        ("marian-many", "de", "fr", "does not have the language 'fr'; it has cmn_Hans, cmn_Hant, eng$"),
        ("m2m100", "de", "xx", "does not have the language 'xx'; it has af, am, "),
        ("nllb", "de", "xx", "does not have the language 'xx'; it has ace_Arab, .*, zul_Latn"),
        ("nllb", "tlh", "de", "does not have the language 'tlh'; it has ace_Arab"),
        ("madlad", "de", "fr", "does not have the language 'fr'; it has de, en, zh, zh_Latn"),
    ],
)
def test_languages_that_a_model_does_not_have(model, source, target, message):
    translator = NeuralQueryTranslator(MODELS[model](), source=source, target=target, push=True, device="cpu")
    with pytest.raises(ValueError, match=message):
        translator.translate(["Katze"])


# --------------------------------------------------------------------------------------------------------- what is kept


@pytest.fixture
def asked(monkeypatch):
    """The sentences that models were given."""
    given = []
    generate = TranslationModel.generate

    def count(self, batch, n_best):
        given.extend(batch)
        return generate(self, batch, n_best)

    monkeypatch.setattr(TranslationModel, "generate", count)
    return given


def test_nothing_is_translated_twice(tmp_path, asked):
    path = shutil.copytree(tiny.learned(), tmp_path / "model")
    first = neural(path, cache=tmp_path / "cache").translate(GERMAN)
    assert len(asked) == len(GERMAN)
    again = neural(path, cache=tmp_path / "cache")
    assert again.translate([*reversed(GERMAN), "Haus! Katze?"])[:-1] == first[::-1] and len(asked) == len(GERMAN) + 2
    assert again.translate(GERMAN) == first and len(asked) == len(GERMAN) + 2
    fresh = neural(path, cache=tmp_path / "cache")
    assert fresh.translate(GERMAN) == first and fresh._loaded is None, "the model is loaded for nothing"
    for options in ({"target": "fr"}, {"beams": 2}, {"max_length": 20}, {"n_best": 2}, {"dtype": "bfloat16"}):
        asked.clear()
        neural(path, cache=tmp_path / "cache", **options).bags(["Haus"])
        assert len(asked) == 1, options
    (path / "model.safetensors").touch()
    neural(path, cache=tmp_path / "cache").translate(["Haus"])
    assert len(asked) == 2, "translations of other weights are taken"


def test_an_interrupted_run_keeps_what_is_done(tmp_path, asked, monkeypatch):
    count = TranslationModel.generate

    def fail(self, batch, n_best):
        if len(asked) >= 3:
            raise KeyboardInterrupt
        return count(self, batch, n_best)

    options = {"cache": tmp_path / "cache", "batch_tokens": 8}
    monkeypatch.setattr(TranslationModel, "generate", fail)
    with pytest.raises(KeyboardInterrupt):
        neural(tiny.learned(), **options).translate(GERMAN)
    done = len(asked)
    assert 3 <= done < len(GERMAN)
    monkeypatch.setattr(TranslationModel, "generate", count)
    assert neural(tiny.learned(), **options).translate(GERMAN) == [english for _, english, _ in tiny.WORDS]
    assert len(asked) == len(GERMAN)


def test_what_is_damaged_is_translated_again(tmp_path, asked):
    translator = neural(tiny.learned(), cache=tmp_path / "cache")
    translator.translate(GERMAN)
    db = sqlite3.connect(tmp_path / "cache")
    with db:
        db.execute("UPDATE translations SET value = replace(value, 'cat', 'dog')")
    db.close()
    assert translator.translate(GERMAN)[0] == "cat" and len(asked) == len(GERMAN) + 1


def test_caches_of_pyterrier_caching(tmp_path, asked):
    topics = pd.DataFrame({"qid": GERMAN, "query": GERMAN})
    documents = pd.DataFrame({"docno": GERMAN, "text": GERMAN})
    cases = [
        (neural(tiny.learned(), n_best=2), "query", "query_toks", topics),
        (neural(tiny.learned(), push=True), "qid", ["query", "query_0"], topics),
        (neural(tiny.learned(), cls=NeuralDocumentTranslator), "docno", ["text", "text_0"], documents),
    ]
    for n, (translator, key, value, rows) in enumerate(cases):
        expected = translator(rows)
        asked.clear()
        with KeyValueCache(str(tmp_path / f"{n}"), translator, key=key, value=value) as cache:
            pd.testing.assert_frame_equal(cache(rows), expected, check_like=True)
            out = cache(rows)
        pd.testing.assert_frame_equal(out, expected, check_like=True)
        assert len(asked) == len(rows)
    assert out.columns.tolist() == ["docno", "text", "text_0"]


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 5}, "n_best must be at most beams=4, not 5"),
        ({"n_best": 2, "push": True}, "n_best must be at most 1 with push=True, not 2"),
        ({"n_best": 0}, "n_best must be a whole number >= 1"),
        ({"beams": 2.5}, "beams must be a whole number"),
        ({"max_length": 4}, "max_length must be a whole number >= 8"),
        ({"batch_tokens": 0}, "batch_tokens must be None or a whole number"),
        ({"push": "yes"}, "push must be True or False"),
        ({"dtype": "int8"}, "dtype must be one of auto"),
        ({"target": "ben_Beng"}, "unknown language code 'ben'"),
    ],
)
def test_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        neural("nowhere/model", **options)


def test_max_length_of_the_model():
    with pytest.raises(ValueError, match="max_length must be at most 64 for .*marian-de-en-, not 65"):
        neural(tiny.marian(), max_length=65).translate(["Katze"])
    assert neural(tiny.marian(), max_length=64).loaded().longest_output == 63


def test_models_that_do_not_translate(tmp_path):
    from models import bert

    with pytest.raises(ValueError, match="is of the type 'bert', and what translates is of marian, m2m_100, t5"):
        neural(bert()).translate(["Katze"])
    with pytest.raises(FileNotFoundError, match="there is no model at .*nothing"):
        neural(tmp_path / "nothing").translate(["Katze"])
    path = shutil.copytree(tiny.madlad(), tmp_path / "t5")
    tokenizer = (path / "tokenizer.json").read_text().replace("<2", "<")
    (path / "tokenizer.json").write_text(tokenizer)
    with pytest.raises(ValueError, match=r"the vocabulary of .*t5 has no languages, such as <2en>"):
        neural(path).translate(["Katze"])


def test_weights_in_a_pickle_are_not_read(tmp_path):
    path = shutil.copytree(tiny.m2m100(), tmp_path / "m2m")
    (path / "model.safetensors").unlink()
    torch.save({}, path / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"m2m has no weights as model.safetensors.*pickles.*save_pretrained\('DIR'\)"):
        neural(path).translate(["Katze"])


def test_the_extra_is_named(monkeypatch):
    def missing(*args, **kwargs):
        raise ImportError("MarianTokenizer requires the SentencePiece library")

    monkeypatch.setattr("pyterrier_mart.translation.neural.model.load_tokenizer", missing)
    with pytest.raises(ImportError, match=r"pip install 'pyterrier-mart\[nmt\]' \(MarianTokenizer"):
        neural(tiny.marian()).translate(["Katze"])


def test_files_that_are_no_cache(tmp_path):
    (tmp_path / "text").write_text("This is no database, but a longer text. " * 100)
    with pytest.raises(ValueError, match=r"cannot use .*text as a cache of translations \(file is not a database\)"):
        neural(tiny.marian(), cache=tmp_path / "text").translate(["Katze"])
    with pytest.raises(FileNotFoundError, match="the folder of the cache .*nowhere.cache does not exist"):
        neural(tiny.marian(), cache=tmp_path / "nowhere" / "cache").translate(["Katze"])


def test_an_empty_text_is_not_translated(asked):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert neural(tiny.marian()).translate(["", " \n"]) == ["", ""] and not asked
    assert neural(tiny.marian()).bags([""]) == [{}]
