"""The recipes of examples/collections.md: their code runs, on small collections with the real ones' fields."""

import ast
import json
import re
from pathlib import Path

import ir_datasets
import pyterrier as pt
import pytest
from clef_collection import write as write_clef

import pyterrier_mart as mart
from pyterrier_mart.datasets.ciral import CIRAL
from pyterrier_mart.datasets.languages import languages_of
from pyterrier_mart.text import LANGUAGES

TEXT = (Path(__file__).parents[1] / "examples/collections.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
IRDS = sorted(set(re.findall(r"irds:([\w/.-]*\w)", TEXT)))
WORDS = {
    "en": ("water", "house"), "zh": ("水", "房子"), "fa": ("آب", "خانه"), "ru": ("вода", "дом"),
    "de": ("Wasser", "Haus"), "sw": ("maji", "nyumba"),
}  # fmt: skip


class Small:
    """A dataset of ir_datasets with its fields and languages, and two documents and topics of our own."""

    def __init__(self, irds_id, real):
        self._id, self._real = irds_id, real

    def __getattr__(self, name):
        if name.startswith(("has_", "docs_", "queries_", "qrels_")):
            return getattr(self._real, name)  # what they are called, and in which language
        raise AttributeError(name)

    def docs_count(self):
        return 3

    def docs_iter(self):
        words = (*WORDS[self._real.docs_lang()], "1994 1 2 3 4 5 6")
        cls = self._real.docs_cls()
        return [cls(f"d{i}", *(word for _ in cls._fields[1:])) for i, word in enumerate(words)]

    def docs_store(self):
        documents = {document.doc_id: document for document in self.docs_iter()}

        class Store:
            def get_many_iter(self, docnos):
                return (documents[docno] for docno in docnos)

        return Store()

    def queries_iter(self):
        cls = self._real.queries_cls()
        languages = [languages_of(f"irds:{self._id}", field).query for field in cls._fields[1:]]
        return [cls(f"q{i}", *(f"{WORDS[language][i]} 1994" for language in languages)) for i in range(2)]

    def qrels_iter(self):
        cls = self._real.qrels_cls()
        values = {"relevance": 1, "iteration": "0"}
        return [cls(f"q{i}", f"d{i}", *(values[field] for field in cls._fields[2:])) for i in range(2)]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Puts small datasets in the place of those of ir_datasets, and MUSE dictionaries into the working directory."""
    load = ir_datasets.load
    of_pyterrier = "pyterrier.datasets._irds.IRDSDataset.irds_ref"
    monkeypatch.setattr(of_pyterrier, lambda self: Small(self._irds_id, load(self._irds_id)))
    monkeypatch.chdir(tmp_path)
    for language, words in WORDS.items():
        lines = "".join(f"{a} {b}\n" for a, b in zip(WORDS["en"], words, strict=True))
        (tmp_path / f"en-{language}.txt").write_text(lines, encoding="utf-8")


def recipe(name):
    (found,) = (block for block in BLOCKS if f'"{name}' in block and "pt.Experiment" in block)
    return found


def run(code, **names):
    """Runs a recipe after the imports that begin the page; returns the value of its last line."""
    tree = ast.parse(BLOCKS[0] + code)
    assert isinstance(tree.body[-1], ast.Expr)
    tree.body[-1] = ast.Assign([ast.Name("result", ast.Store())], tree.body[-1].value)
    namespace = dict(names)
    exec(compile(ast.fix_missing_locations(tree), "collections.md", "exec"), namespace)
    return namespace["result"]


def test_code_compiles():
    assert len(BLOCKS) == 11
    for block in BLOCKS:
        compile(block, "collections.md", "exec")
        assert max(map(len, block.split("\n"))) <= 120


def test_datasets_exist():
    assert len(IRDS) >= 9 and set(IRDS) <= set(ir_datasets.registry)
    for name in IRDS:
        languages = languages_of(f"irds:{name}")
        assert set(languages) <= LANGUAGES.keys()


def test_languages_are_as_the_comments_say():
    for call, said in re.findall(r"^(mart\.languages_of\(.*?\)) +# (Languages\(.*\))$", TEXT, re.MULTILINE):
        assert repr(eval(call, {"mart": mart})) == said


def test_tables_of_published_numbers():
    (section,) = re.findall(r"\n## What others report\n(.*?)\n## ", TEXT, re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        head, _, *rows = [line.strip("|\n").split(" | ") for line in table.splitlines()]
        assert len(rows) > 2 and {len(row) for row in rows} == {len(head)}
        assert {row[0].strip() for row in rows} <= LANGUAGES.keys()
        numbers = [cell for row in rows for cell in row if "0." in cell]
        assert len(numbers) >= len(rows) and all(re.fullmatch(r"0\.\d{4}, 0\.\d{4}", cell.strip()) for cell in numbers)


@pytest.mark.parametrize("name", ["neuclir/1/zh", "hc4", "neumarco", "mmarco", "wikiclir", "miracl"])
def test_irds_recipes(small, name):
    code = recipe(f"irds:{name}")
    code = code.replace('mart.MetaSBERTRetriever("e5-small")', "pt.Transformer.identity()")
    result = run(code)
    measures = [column for column in result.columns if "@" in column and column.count(" ") == 0]
    assert len(result) == 2 and len(measures) == 2
    assert (result[measures].iloc[1] > 0.8).all(), result
    if "no translation" in result["name"].values:
        assert (result[measures].iloc[0] == 0.0).all(), result


def test_title_and_text_are_indexed_and_loaded_together(small, tmp_path):
    data = pt.get_dataset("irds:hc4/fa/test")
    index = mart.bm25_index(data, tmp_path / "index", text_field=("title", "text"), progress=False)
    assert index.analyzer.lang == "fa" and index.meta["text_field"] == ["title", "text"] and len(index) == 3
    (with_text,) = (block for block in BLOCKS if "def with_text" in block)
    namespace = {}
    exec(BLOCKS[0] + with_text, namespace)
    found = (index.bm25() >> namespace["with_text"](data)).search(WORDS["fa"][0])
    assert found["text"].tolist() == ["آب\nآب"]


def test_ciral_recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_MART_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CIRAL_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    native = CIRAL("so").get_topics("so").set_index("qid")["query"]
    relevant = CIRAL("so").get_qrels("test-a-pools").query("label > 0").drop_duplicates("docno")
    with open("somali.jsonl", "w", encoding="utf-8") as stream:
        for row in relevant.itertuples():
            stream.write(json.dumps({"docid": row.docno, "title": "", "text": native[row.qid], "url": ""}) + "\n")
    result = run(recipe("mart:ciral/so"))
    smt, human = result["nDCG@20"]
    assert 0.1 < smt < human


def test_clef_recipe(tmp_path, monkeypatch):
    write_clef(tmp_path / "clef")
    monkeypatch.setenv("PYTERRIER_MART_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CLEF_HOME", str(tmp_path / "clef"))
    monkeypatch.chdir(tmp_path)
    smt, human = run(recipe("mart:clef/de-en"))["AP@100"]
    assert 0.2 < smt <= human
