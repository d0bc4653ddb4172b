"""The rooms of the package, and who may import whom: as docs/architecture.md says."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

import pyterrier_mart

PACKAGE = Path(pyterrier_mart.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

#: The rooms that each room may import from, besides itself and the ground floor, which may import from none.
ROOMS = {
    "translation": {"encoders"},
    "retrieval": {"translation"},
    "datasets": set(),
    "encoders": set(),
    "evaluation": {"datasets"},
    "dense": {"encoders", "datasets", "retrieval"},
    "mart": {"encoders", "translation"},
    "meta": {"encoders", "retrieval", "datasets", "evaluation", "dense"},
    "cli": {"translation", "retrieval", "datasets", "encoders", "evaluation", "dense", "mart", "meta"},
}


def imports(path: Path) -> set[str]:
    """Returns the modules of the package that a file imports anywhere in it: at the top, in functions, for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in found if name in MODULES}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}
FACES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def room(module: str) -> str | None:
    """Returns the room of a module; ``None`` on the ground floor."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"pyterrier_mart"}))
def test_imports_point_one_way(module):
    own = room(module)
    allowed = {own, None} | (ROOMS[own] if own else set())
    others = imports(MODULES[module]) - {"pyterrier_mart"}
    wrong = {name for name in others if room(name) not in allowed}
    assert not wrong, f"{module} is in {own or 'the ground floor'} and imports {', '.join(sorted(wrong))}"


def test_only_the_command_line_imports_the_public_names():
    for module, path in MODULES.items():
        if room(module) == "cli" or module == "pyterrier_mart":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "pyterrier_mart":
                names = {alias.name for alias in node.names if f"pyterrier_mart.{alias.name}" not in MODULES}
                assert names <= {"__version__"}, f"{module} imports {names} from the face of the package"


def test_no_circles():
    graph = {name: imports(path) - FACES - {name} for name, path in MODULES.items() if name not in FACES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_every_room_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for name in ROOMS:
        assert f"`{name}/`" in text
    ground = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    for name in ground:
        assert f"`{name}`" in text, f"docs/architecture.md does not say what {name} is for"


def test_files_on_the_page_exist():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 30
    missing = sorted(name for name in named if not (PACKAGE / name).is_file() and not (PACKAGE.parent / name).is_file())
    assert not missing
