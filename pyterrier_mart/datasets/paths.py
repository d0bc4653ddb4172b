"""Where licensed collections lie on this machine, and where the stores that are built from them are kept.

A user has each collection in a folder of their own. Its path comes from an environment variable (``CLEF_HOME``), or
from what ``pyterrier-mart clef setup`` remembered. Nothing is looked up when the package is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pyterrier as pt

from pyterrier_mart.files import CACHE_VARIABLE, atomic_file, read_json

__all__ = ["home", "remember", "stores"]

_FILE = "pyterrier_mart/homes.json"  # by PyTerrier's home


def home(name: str, variable: str) -> Path:
    """Returns the folder in which a collection lies.

    Args:
        name: The collection's name, such as ``"clef"``.
        variable: The environment variable that names the folder. It counts more than what was remembered.

    Raises:
        FileNotFoundError: If no folder was named, or it is not there.
        ValueError: If the file of remembered folders is damaged.
    """
    remedy = f"run 'pyterrier-mart {name} setup DIR', or set {variable} to the folder"
    given = os.environ.get(variable, "").strip()
    folder = given or remembered().get(name)
    if folder is None:
        raise FileNotFoundError(f"the folder of the {name.upper()} collection is not known: {remedy}")
    path = Path(folder).expanduser()
    if not path.is_dir():
        origin = variable if given else f"the folder of the {name.upper()} collection"
        raise FileNotFoundError(f"{origin} is {folder}, where there is no folder: {remedy}")
    return path.resolve()


def remember(name: str, path: str | os.PathLike[str]) -> Path:
    """Keeps the folder of a collection for later sessions.

    Args:
        name: The collection's name, such as ``"clef"``.
        path: The folder. A relative path is made absolute.

    Returns:
        The absolute path.

    Raises:
        NotADirectoryError: If there is no such folder.
        ValueError: If the file of remembered folders is damaged.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")
    known = remembered()
    if known.get(name) != str(folder):
        with atomic_file(Path(pt.io.pyterrier_home()) / _FILE) as tmp:
            # In ASCII, for a name that is not UTF-8 has halves of surrogate pairs.
            tmp.write_text(json.dumps({**known, name: str(folder)}, indent=1), encoding="ascii")
    return folder


def stores(name: str, folder: Path | None = None) -> Path:
    """Returns the folder for the stores and catalogues of a collection, which need not exist yet.

    Args:
        name: The collection's name, such as ``"clef"``.
        folder: Where the collection lies. Two folders, say of two releases, are told apart by their paths. ``None``:
            the folder for those of all.

    Returns:
        A folder in the one that ``PYTERRIER_MART_CACHE`` names, by default PyTerrier's home.
    """
    given = os.environ.get(CACHE_VARIABLE, "").strip()
    found = Path(given or Path(pt.io.pyterrier_home()) / "pyterrier_mart").expanduser().resolve() / name
    return found if folder is None else found / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]


def remembered() -> dict[str, str]:
    """Returns the folders that were kept, by collection.

    Raises:
        ValueError: If the file is damaged.
    """
    file = Path(pt.io.pyterrier_home()) / _FILE
    try:
        return {name: str(Path(folder)) for name, folder in read_json(file).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as err:
        raise ValueError(f"{file} is damaged ({err}): delete it and set up again") from err
