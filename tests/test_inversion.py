"""Inverted indexes on disk: what PISA reads, whatever part of it is in memory at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.retrieval import inversion
from pyterrier_mart.retrieval.inversion import invert
from pyterrier_mart.retrieval.types import Postings

BAGS = st.dictionaries(st.sampled_from(["a", "b", "c", "é", "z", "中", "\U0001f600"]), st.integers(1, 9), max_size=5)


def numbers(path):
    return np.fromfile(path, dtype=np.uint32).tolist()


def lists(flat):
    """Splits numbers at the lengths that they begin with."""
    out = []
    while flat:
        out.append(flat[1 : flat[0] + 1])
        flat = flat[flat[0] + 1 :]
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(BAGS, min_size=1, max_size=12), st.integers(1, 20))
def test_against_a_plain_loop(tmp_path_factory, bags, run):
    path = tmp_path_factory.mktemp("index")
    invert(({"docno": f"d{i}", "toks": toks} for i, toks in enumerate(bags)), path, run=run)
    terms = sorted({term for toks in bags for term in toks})
    postings = [[(i, toks[term]) for i, toks in enumerate(bags) if term in toks] for term in terms]
    assert (path / "fwd.terms").read_text(encoding="utf-8").split("\n")[:-1] == terms
    assert (path / "fwd.documents").read_text().split() == [f"d{i}" for i in range(len(bags))]
    docs = numbers(path / "inv.docs")
    if terms:
        assert docs[:2] == [1, len(bags)]
        assert lists(docs[2:]) == [[i for i, _ in found] for found in postings]
    assert lists(numbers(path / "inv.freqs")) == [[n for _, n in found] for found in postings]
    assert numbers(path / "inv.sizes") == [len(bags), *(sum(toks.values()) for toks in bags)]
    assert len(list(path.iterdir())) == 5  # nothing temporary is left


@settings(max_examples=40, deadline=None)
@given(st.lists(BAGS, min_size=1, max_size=12), st.integers(1, 20), st.integers(1, 5))
def test_documents_may_come_as_arrays(tmp_path_factory, bags, run, together):
    path = tmp_path_factory.mktemp("index")
    words = np.array(["z", "中", "never", "a", "é", "b", "\U0001f600", "c"], dtype=object)
    documents = [{"docno": f"d{i}", "toks": toks} for i, toks in enumerate(bags)]
    blocks = []
    for i in range(0, len(bags), together):
        part = bags[i : i + together]
        bounds = np.cumsum([0, *map(len, part)])
        terms = np.array([words.tolist().index(term) for toks in part for term in toks], dtype=np.int64)
        freqs = np.array([n for toks in part for n in toks.values()], dtype=np.int64)
        blocks.append(Postings([f"d{i + j}" for j in range(len(part))], bounds, terms, freqs, words))
    assert [document for block in blocks for document in block.documents()] == documents
    found = []
    for name, given_ in (("one by one", documents), ("arrays", blocks)):
        (path / name).mkdir()
        invert(given_, path / name, run=run)
        found.append({file.name: file.read_bytes() for file in sorted((path / name).iterdir())})
    assert found[0] == found[1]


def test_a_disk_without_reserved_room(tmp_path, monkeypatch):
    monkeypatch.delattr(inversion.os, "posix_fallocate")
    invert([{"docno": "d", "toks": {"a": 2}}], tmp_path)
    assert numbers(tmp_path / "inv.docs") == [1, 1, 1, 0]


def test_no_documents(tmp_path):
    invert([], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fwd.documents"]


@pytest.mark.parametrize("run", [700, 1 << 23])
def test_retrieval_does_not_depend_on_the_runs(tmp_path, monkeypatch, run):
    pytest.importorskip("pyterrier_pisa")
    from pyterrier_mart import bm25_index
    from pyterrier_mart.retrieval import pisa

    monkeypatch.setattr(pisa, "invert", lambda documents, path: invert(documents, path, run=run))
    data = XQuADR("en", paragraphs=True)
    index = bm25_index(data, tmp_path / "index", engine="pisa", progress=False)
    relevant = dict(zip(data.get_qrels()["qid"], data.get_qrels()["docno"], strict=True))
    found = index.bm25(num_results=1)(data.get_topics().head(100))
    right = sum(relevant[qid] == docno for qid, docno in zip(found["qid"], found["docno"], strict=True))
    assert right == 94
