"""Topics and judgments of CLEF: published files, and small ones in every form."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_mart.datasets.clef.campaigns import listed, misfit, ranges
from pyterrier_mart.datasets.clef.qrels import Judgment, are_judgments, is_judgment, read_qrels
from pyterrier_mart.datasets.clef.topics import Topic, canonical_qid, is_topic, language_of_name, read_topics
from pyterrier_mart.problems import Problems

SAMPLE = Path(__file__).parent / "data/clef-adhoc-sample"
DATA = Path(__file__).parents[2] / "shared/data"
published = pytest.mark.skipif(not DATA.exists(), reason="needs the shared data")


def topics(content, name="topics.xml"):
    """The topics of a file, and the problems with it."""
    problems = Problems()
    data = content if isinstance(content, bytes) else content.encode()
    return list(read_topics(io.BytesIO(data), name, problems)), problems.messages


def judgments(content):
    problems = Problems()
    return list(read_qrels(io.BytesIO(content), "qrels.txt", problems)), problems.messages


# -------------------------------------------------------------------------------------------------- numbers, languages


@pytest.mark.parametrize("text", ["C041", "41", "41-AH", "10.2452/41-AH", " C41 ", "c041", "041", "41-ah"])
def test_numbers(text):
    assert canonical_qid(text) == "41"


@pytest.mark.parametrize("text", ["", "C", "GC026", "41-GC", "0", "C000", "41 42", "-41", "41.5", "x" * 200, "٤١"])
def test_numbers_of_something_else(text):
    with pytest.raises(ValueError, match="a topic must be one such as"):
        canonical_qid(text)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("topics.so.tsv", "so"),
        ("clef/queries_sw.tsv", "sw"),
        ("Top-en03.txt", "en"),
        ("somali.tsv", "so"),
        ("a.zip/Topics/2003/Top-fre.txt", "fr"),
        ("topics/de/2003.txt", "de"),
        ("topics.so-en.tsv", None),
        ("de/topics.xml", "de"),
        ("topics.clef06fr.mono.fr.txt", "fr"),
        ("topics.clef06fr.x2fr.om.txt", None),  # Oromo
        ("fr/topics.om.tsv", None),
        ("topics.de.orm.txt", None),
        ("topics_no_narr.txt", None),
        ("topics_en_no_narr.txt", "en"),
        ("topics_no.txt", "no"),
        ("topics-norwegian-title.txt", "no"),
        ("DE-topics.txt.gz", "de"),
        ("topics-x2bg-clef2007.xml", None),
        ("de/clef/topics.xml", None),
        ("topics.xml", None),
    ],
)
def test_languages_of_names(name, language):
    if language:
        assert language_of_name(name) == language
    else:
        with pytest.raises(ValueError, match="the language of the topics is unknown"):
            language_of_name(name)


# ----------------------------------------------------------------------------------------------------- published files


@pytest.mark.parametrize("path", sorted(SAMPLE.glob("*.xml")), ids=lambda path: path.name)
def test_published_xml(path):
    numbers = {
        "de": "41 42 43", "es": "41 42 43", "nl": "41 42 43", "it": "41 42 44", "fr": "251 252 253",
        "bg": "251 252 253", "hu": "251 252 253", "pt": "251 252 253", "fi": "92 94 95", "sv": "91 92 93",
        "ru": "143 147 148", "fa": "551 552 553",
    }  # fmt: skip
    with open(path, "rb") as stream:
        problems = Problems()
        found = list(read_topics(stream, path.name, problems))
    language = path.name.split(".")[1]
    assert [topic.qid for topic in found] == numbers[language].split()
    assert not problems and {topic.language for topic in found} == {language}
    assert all(topic.title and topic.description and topic.narrative for topic in found)
    assert not any(character in "".join(topic) for topic in found for character in "<>\n\ufffd")


@published
def test_published_tsv():
    found, problems = topics((DATA / "clef06fr/topics.en.tsv").read_bytes(), "topics.en.tsv")
    assert len(found) == 49 and not problems
    assert [topic.qid for topic in found] == [str(n) for n in range(301, 351) if n != 332]
    assert found[0] == Topic("301", "en", "Nestlé Brands")


@published
def test_published_judgments():
    found, problems = judgments(gzip.decompress((DATA / "clef06fr/qrels.fr.txt.gz").read_bytes()))
    assert len(found) == 17882 and sum(label for _, _, label in found) == 2148 and not problems
    assert found[0] == Judgment("301", "ATS.940106.0082", 0)
    assert len({number for number, _, _ in found}) == 49


# ------------------------------------------------------------------------------------------------------------- markup

SGML = """\
<top>
<num> C901 </num>
<EN-title> Lost & Found </EN-title>
<EN-desc> Find reports about
umbrellas &amp; hats. </EN-desc>
<EN-narr> A &lt;b&gt; is x < y. </EN-narr>
</top>

<TOP>
<NUM>C902</NUM>
<en-TITLE>Tea
<en-DESC>Is it raining?
</TOP>
"""


def test_sgml_without_a_root():
    found, problems = topics(SGML)
    assert not problems
    assert found == [
        Topic("901", "en", "Lost & Found", "Find reports about umbrellas & hats.", "A <b> is x < y."),
        Topic("902", "en", "Tea", "Is it raining?"),
    ]


@pytest.mark.parametrize(
    ("opening", "name", "expected"),
    [
        ('<topics><topic lang="fr">', "topics.de.xml", "fr"),
        ('<topics lang="fra"><topic>', "topics.de.xml", "fr"),
        ("<topics><topic xml:lang='fr' n='1'>", "x.xml", "fr"),
        ("<topics><topic>", "topics.de.xml", "de"),
    ],
)
def test_xml_says_its_language(opening, name, expected):
    body = (
        "<identifier>10.2452/451-AH</identifier><title><![CDATA[R&D <1>]]></title><description/>"
        "<narrative>&#233;t&eacute;</narrative>"
    )
    found, problems = topics(f"<?xml version='1.0'?>\n{opening}{body}</topic></topics>", name)
    assert found == [Topic("451", expected, "R&D <1>", "", "été")] and not problems


def test_several_languages_in_a_topic():
    found, _ = topics("<top><num>C1</num><EN-title>tea</EN-title><DE-title>Tee</DE-title></top>")
    assert found == [Topic("1", "en", "tea"), Topic("1", "de", "Tee")]
    found, _ = topics('<topic><num>1</num><title lang="en">tea</title><title lang="ja">茶</title></topic>')
    assert found == [Topic("1", "en", "tea"), Topic("1", "ja", "茶")]


@pytest.mark.parametrize(
    "data",
    [
        "<top><num>C1</num><FR-title>Œuvre à Nîmes</FR-title></top>".encode("windows-1252"),
        "<top><num>C1</num><FR-title>Œuvre à Nîmes</FR-title></top>".encode(),
        "<top><num>C1</num><FR-title>Œuvre à Nîmes</FR-title></top>".encode("utf-8-sig"),
        "<top><num>C1</num><FR-title>Œuvre à Nîmes</FR-title></top>".encode("utf-16"),
        "<?xml version='1.0' encoding='iso-8859-15'?><top><num>C1</num><FR-title>Œuvre à Nîmes</FR-title></top>".encode(
            "iso-8859-15"
        ),
    ],
    ids=["windows-1252", "utf-8", "bom", "utf-16", "declared"],
)
def test_encodings(data):
    assert topics(data)[0] == [Topic("1", "fr", "Œuvre à Nîmes")]


BULGARIAN = "Промишленост на компактдискове"


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "iso8859-5", "cp866"])
@pytest.mark.parametrize("start", ["", '<?xml version="1.0" encoding="ISO-8859-1"?>\n'])
def test_cyrillic_letters_without_a_true_declaration(encoding, start):
    content = f"{start}<top><num>C1</num><EN-title>CDs</EN-title><BG-title>{BULGARIAN}</BG-title></top>"
    found, problems = topics(content.encode(encoding), "t.xml")
    assert found == [Topic("1", "en", "CDs"), Topic("1", "bg", BULGARIAN)]
    codec = {"koi8-r": "koi8-u"}.get(encoding, encoding)
    assert problems == [f"t.xml: neither in UTF-8 nor in another encoding that it says: read as {codec}"]
    assert topics(content) == (found, [])  # in UTF-8, whatever it says


@pytest.mark.parametrize(
    ("language", "title", "encoding"),
    [("hu", "Őszi erdők", "cp1250"), ("el", "Ελλάδα", "cp1253"), ("tr", "Işık", "cp1254")],
)
def test_other_letters_without_a_declaration(language, title, encoding):
    found, problems = topics(f"1\t{title}\n".encode(encoding), f"topics.{language}.tsv")
    assert found == [Topic("1", language, title)] and f"read as {encoding}" in problems[0]


@pytest.mark.parametrize("path", sorted(SAMPLE.glob("*.xml")), ids=lambda path: path.name)
def test_topics_in_another_language_than_they_say(path):
    told = path.name.split(".")[1]
    said = "el" if told != "el" else "en"
    found, problems = topics(path.read_bytes(), f"topics.{said}.xml")
    looks = {"bg": "Cyrillic letters", "ru": "Cyrillic letters", "fa": "Arabic letters"}.get(told, "Latin letters")
    assert len(found) == 3 and problems == [
        f"topics.{said}.xml: topics in {looks}, it seems, but the file says that they are in Greek"
    ]
    if looks == "Latin letters":
        names = {"de": "German", "es": "Spanish", "fi": "Finnish", "fr": "French", "hu": "Hungarian", "it": "Italian",
                 "nl": "Dutch", "pt": "Portuguese", "sv": "Swedish"}  # fmt: skip
        _, problems = topics(path.read_bytes(), "topics.id.xml")
        assert f"topics in {names[told]}, it seems, but the file says that they are in Indonesian" in problems[0]


@published
@pytest.mark.parametrize("path", sorted((DATA / "clef06fr").glob("topics.*.tsv")), ids=lambda path: path.name)
def test_published_titles_do_not_contradict_their_names(path):
    if path.name in ("topics.om.tsv", "topics.te.tsv"):
        with pytest.raises(ValueError, match=r"the language of the topics is unknown \(its name tells (om|te)\)"):
            topics(path.read_bytes(), path.name)
    else:
        found, problems = topics(path.read_bytes(), path.name)
        assert len(found) == 49 and not problems


def test_one_byte_that_is_not_utf8_does_not_change_the_others():
    assert topics("\ufeff1\té ".encode() + b"\xe9\n", "topics.fr.tsv")[0] == [Topic("1", "fr", "é \ufffd")]


@pytest.mark.parametrize("name", ["punycode", "unicode_escape", "hex", "idna", "utf-16", "undefined", "none-such"])
def test_encodings_that_are_none(name):
    content = f"<?xml version='1.0' encoding='{name}'?><top><num>C1</num><FR-title>Été \\x41</FR-title></top>"
    assert topics(content)[0] == [Topic("1", "fr", "Été \\x41")]


def test_the_language_must_be_known():
    with pytest.raises(ValueError, match=r"^queries\.xml: the language of the topics is unknown.*topics\.so\.tsv"):
        topics("<topic><num>1</num><title>x</title></topic>", "queries.xml")
    with pytest.raises(ValueError, match="the language of the topics is unknown"):
        topics("1\tx\n", "queries.tsv")


def test_a_file_of_gigabytes_is_no_topic_file(monkeypatch):
    monkeypatch.setattr("pyterrier_mart.datasets.clef.topics._LONGEST", 1000)
    with pytest.raises(ValueError, match=r"^big\.xml: larger than"):
        topics("<top>" + " " * 1000, "big.xml")


def test_damaged_topics_are_reported_and_the_others_read():
    content = (
        "<top>\n<num>GC1</num>\n<EN-title>a</EN-title>\n</top>\n"
        "<top>\n<EN-title>b</EN-title>\n</top>\n"
        "<top>\n<num>C3</num>\n<EN-desc>c</EN-desc>\n</top>\n"
        "<top>\n<num>C4</num>\n</top>\n"
        "<top>\n<num>C5</num>\n<EN-title>never ends\n"
        "<top>\n<num>C6</num>\n<EN-title>f</EN-title>"
    )
    found, problems = topics(content, "a.txt")
    assert found == [Topic("5", "en", "never ends"), Topic("6", "en", "f")]
    assert problems == [
        "a.txt, line 1: a topic must be one such as C141 or 141-AH, not 'GC1'",
        "a.txt, line 5: a topic without a number",
        "a.txt, line 8: topic 3 has no title",
        "a.txt, line 12: topic 4 has no title",
    ]


def test_tab_separated_topics():
    content = (
        "\ufeffqid\ttitle\r\nC041\tCunto carruur\twarbixin\tall\r\n\n42-AH\tbiyo  badan\n"
        "x\ty\n43\n44\t\n45\ta\tb\tc\td\n"
    )
    found, problems = topics(content, "topics.so.tsv")
    assert found == [Topic("41", "so", "Cunto carruur", "warbixin", "all"), Topic("42", "so", "biyo badan")]
    assert [message.partition(":")[0] for message in problems] == [f"topics.so.tsv, line {n}" for n in (5, 6, 7, 8)]
    assert "not 'x'" in problems[0] and "found '43'" in problems[1]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<top>", "</top>", "<num>", "</num>", "<EN-title>", "<DE-title", "<title>", "</", "<![CDATA[", "]]>",
             "&#1;", "&#xFFFFFF;", "C1", "12", "\t", "\n", "<topics lang='", "<topic lang=\"en\">", "\x00", "é", "text"]
        ),
        max_size=30,
    ),
    st.binary(max_size=20),
)  # fmt: skip
def test_nothing_raises_but_for_the_language(parts, junk):
    found, _ = topics("".join(parts).encode() + junk, "topics.en.txt")
    assert all(canonical_qid(topic.qid) == topic.qid and topic.title for topic in found)


# ----------------------------------------------------------------------------------------------------------- judgments


def test_judgments_in_every_spelling():
    found, problems = judgments(
        b"\xef\xbb\xbf41-AH 0 A.1 1\r\nC041\tQ0\tA.2\t0\n10.2452/42-AH   0 B 2\n\n\xef\xbb\xbf42 0 C -1"
    )
    assert not problems
    assert found == [("41", "A.1", 1), ("41", "A.2", 0), ("42", "B", 2), ("42", "C", -1)]


def test_judgments_without_a_second_column():
    assert judgments(b"41 LA010194-0001 1\nC042\tX-1\t0\n41 LA010194-0002\n") == (
        [("41", "LA010194-0001", 1), ("42", "X-1", 0)],
        ["qrels.txt, line 3: expected 'topic 0 docno label', found '41 LA010194-0002'"],
    )


@pytest.mark.parametrize(
    ("numbers", "fit"),
    [
        (range(176, 226), False),  # FIRE 2012
        (range(26, 76), False),
        (range(51, 101), False),  # TREC-1
        (range(141, 201), True),
        (range(41, 201), True),
        (range(41, 176), True),
        (range(180, 211), True),  # a selection
        (range(176, 236, 2), True),
        (range(551, 651), True),
        ([], True),
    ],
)
def test_topics_of_other_campaigns(numbers, fit):
    assert not misfit(numbers) == fit
    assert fit or f"topics {numbers[0]} to {numbers[-1]} begin within those of CLEF" in misfit(numbers)


def test_lists_of_topics_stay_on_a_line():
    assert ranges([1, 2, 3, 5]) == "1-3, 5" and ranges([]) == "" and listed(["41"]) == "1 topic (41)"
    text = listed(map(str, range(1, 2001, 2)))
    assert text.startswith("1000 topics (1, 3, 5, 7, ") and text.endswith(", ...)") and len(text) < 80


def test_damaged_judgments_are_reported_and_the_others_read():
    long = b"41 0 " + b"x" * 10_000 + b" 1\n"
    content = b"41 0 A 1\n41 0 A\n41 0 A yes\n41 0 A 1_0\nGC1 0 A 1\n" + long + b"\xff\xfe 0\n42 0 B 1\n"
    found, problems = judgments(content)
    assert found == [("41", "A", 1), ("42", "B", 1)]
    assert [message.partition(":")[0] for message in problems] == [f"qrels.txt, line {n}" for n in range(2, 8)]
    assert problems[0] == "qrels.txt, line 2: expected 'topic 0 docno label', found '41 0 A'"
    assert max(map(len, problems)) < 200


@pytest.mark.parametrize(
    ("line", "judged", "asked"),
    [
        ("41-AH 0 LA010194-0001 1", True, False),
        ("C041\tQ0\tLA010194-0001\t0", True, True),  # what it is, is asked first
        ("41 Q0 LA010194-0001 1 0.5 run", False, False),
        ("41\tbaby food", False, True),
        ("qid\tquery", False, True),
        ("41\t", False, False),
        ("41 LA010194-0001 1", True, False),
        ("41\tLA010194-0001\t1", True, True),  # what it is, is asked first
        ("41 1 LA010194-0001 0", True, False),
        ("41 UNKNOWN-1 1", False, False),  # may be anything
        ("41\tbaby food\t1994", False, True),
        ("41\tHaiti\t1", False, True),
        ("one two three four", False, False),
        ("", False, False),
    ],
)
def test_first_lines(line, judged, asked):
    assert is_judgment(line) == judged and is_topic(line) == asked


@pytest.mark.parametrize(
    ("lines", "judged"),
    [
        (["41\tXX-0001\t1", "42\tXX-0002\t0"], True),
        (["topic\tdocno\tlabel", "41\tXX-0001\t1"], True),
        (["41 1 XX-0001 1"], True),
        (["41 XX-0001 1", "Haiti"], False),
        (["41\tEuro 96\t1", "42\tHaiti\t1"], False),
        (["41\t1994\t1"], False),
        (["topic\ttitle"], False),
        ([], False),
    ],
)
def test_judgments_of_documents_that_are_not_clef_s(lines, judged):
    assert are_judgments(lines) == judged


def test_topics_of_trec():
    found, problems = topics(
        "<top>\n<num> Number: 401\n<title> Topic: foreign minorities\n\n<desc> Description:\nWhat languages?\n\n"
        "<narr> Narrative:\nNone.\n</top>\n<top>\n<num> Number: 402\n<title> genetics\n",
        "topics.en.txt",
    )
    assert not problems
    assert found == [
        Topic("401", "en", "foreign minorities", "What languages?", "None."),
        Topic("402", "en", "genetics"),
    ]
