"""A data set's parsed arrays, kept in the user's cache so that they are mapped, not read, later."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tunefree.data.named import fetch
from tunefree.data.named.fetch import File, Found
from tunefree.data.named.formats import Arrays
from tunefree.errors import ConfigError

LAYOUT = "1"  # another number makes every cache build its arrays anew


class Form(NamedTuple):
    """One shape in which a set comes: its files and how they are read."""

    files: tuple[File, ...]
    read: Callable[[Sequence[Found]], Arrays]


@dataclass(frozen=True)
class FileSet:
    """A set that comes as files, in one of several forms."""

    name: str
    folders: tuple[str, ...]  # where below a data folder its files may lie
    forms: tuple[Form, ...]
    train: int  # samples
    test: int
    classes: int
    system: str = ""  # a system package's folder, below its prefix
    hint: str = ""  # another way out, said when the set could not be had


def at_hand(files: FileSet, data_dir: str | Path | None = None) -> bool:
    """Whether the set can be loaded without the network."""
    return arrays_folder(files).is_dir() or any(
        look(files, folders) for folders in local_folders(files, data_dir).values()
    )


def arrays_of(files: FileSet, data_dir: str | Path | None = None) -> Arrays:
    """The set's arrays: from the user's folder, the cache, a system package or the network."""
    kept, places = arrays_folder(files), local_folders(files, data_dir)
    chosen = look(files, places["data_dir"])
    if chosen:
        form, found = chosen
        seen = kept / f"checked-{fingerprint(found)}"  # these very files were read before
        arrays = open_arrays(kept) if seen.exists() else None
        if arrays is None:
            keep(kept, checked(files, form.read(found), found))
            seen.touch()
            arrays = open_arrays(kept)
    else:
        arrays = open_arrays(kept)
        if arrays is None:
            form, found = look(files, places["cache"] + places["system"]) or fetched(files, places)
            keep(kept, checked(files, form.read(found), found))
            arrays = open_arrays(kept)
    if arrays is None:
        raise ConfigError(f"the arrays just written to {kept} cannot be read; is the disk full?")
    return arrays


def arrays_folder(files: FileSet) -> Path:
    return fetch.cache_folder() / "arrays" / f"{files.name}-{LAYOUT}"


def local_folders(files: FileSet, data_dir: str | Path | None) -> dict[str, list[Path]]:
    """Where to look, in this order."""
    chosen, cache = fetch.chosen_folder(data_dir), fetch.cache_folder()
    return {
        "data_dir": [chosen / f for f in (*files.folders, "")] if chosen else [],
        "cache": [cache / folder for folder in files.folders],
        "system": fetch.system_folders(files.system) if files.system else [],
    }


def look(files: FileSet, folders: Sequence[Path]) -> tuple[Form, list[Found]] | None:
    """The first form whose files are all in one of the folders."""
    for form in files.forms:
        if found := fetch.find(form.files, folders):
            return form, found
    return None


def fetched(files: FileSet, places: dict[str, list[Path]]) -> tuple[Form, list[Found]]:
    """A form fetched into the cache, the official address first."""
    folder = places["cache"][0]
    chosen = places["data_dir"][-1:]
    tried = [f"not in {chosen[0]}" if chosen else "no data_dir given", f"not in {folder}"]
    if files.system:
        tried.append("no system package")
    for form in files.forms:
        if not all(file.url or file.npm for file in form.files):
            continue
        if problem := fetch.fetch(form.files, folder):
            tried.append(problem)
        elif found := fetch.find(form.files, [folder]):
            return form, found
    raise fetch.not_found(
        files.name, [form.files for form in files.forms], tried, folder, files.hint
    )


def checked(files: FileSet, arrays: Arrays, found: Sequence[Found]) -> Arrays:
    """The same arrays, once sizes and labels are those of the official set."""
    where = found[0].path if len(found) == 1 else found[0].path.parent
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


def fingerprint(found: Sequence[Found]) -> str:
    """A short name for these files as they are now."""
    now = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for _, path in found]
    return hashlib.sha256(repr(now).encode()).hexdigest()[:16]


def keep(kept: Path, arrays: Arrays) -> None:
    """The arrays as .npy files in this folder, which appears whole or not at all."""
    temporary = None
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=kept.name, dir=kept.parent))
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", np.ascontiguousarray(array))
        temporary.chmod(0o755)
        shutil.rmtree(kept, ignore_errors=True)
        temporary.replace(kept)
    except OSError as error:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
        if not kept.is_dir():  # else another process was faster, with the same arrays
            raise ConfigError(
                f"the cache {kept.parent} cannot be written ({error.strerror}); make room or set "
                "TUNEFREE_CACHE to another folder"
            ) from error


def open_arrays(kept: Path) -> Arrays | None:
    """The kept arrays mapped into memory, copied page by page only if written to."""
    try:
        arrays: Arrays = {
            path.stem: np.load(path, mmap_mode="c", allow_pickle=False)
            for path in sorted(kept.glob("*.npy"))
        }
    except (OSError, ValueError, EOFError):
        return None
    return arrays or None
