"""The notebooks run as they are, on a reduced setting."""

from pathlib import Path

import models
import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"
REDUCED = {
    "meta.ipynb": f"""
ENCODER = {str(models.bert())!r}
STEPS = 1
SETTINGS = dict(max_length=(16, 16), freeze="first:2", adapt="last:2", meta_batch_size=1, inner_steps=1, n_neg=1)
TEST = 8
""",
    "mart.ipynb": """
ENCODER = "minilm-l6-en"
TRAIN, TEST = 8, 6
EPOCHS, DEPTH = 1, 4
LEARN = dict(learning_rate=5e-5, freeze_layers=4, validation_queries=0)
""",
}


@pytest.mark.parametrize("name", sorted(REDUCED))
def test_notebook_runs(name, tmp_path):
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    parameters.source = REDUCED[name]
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    html = "".join(output.get("data", {}).get("text/html", "") for output in outputs)
    assert "AP@100" in html and {"mart": "MART", "meta": "dense, meta-trained"}[name.split(".")[0]] in html


@pytest.mark.parametrize("name", sorted(REDUCED))
def test_notebook_keeps_its_output(name):
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "not executed in one go"
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
