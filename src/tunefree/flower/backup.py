"""Copies of a server's or a node's folder: made while it is used, restored when it is not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from tunefree.errors import ConfigError
from tunefree.record.lock import read_only

ABOUT = "backup.json"  # when a backup was begun, and the hash of each file
BESIDE = ("-wal", "-shm", "-journal")  # what SQLite has beside a database
LEFT = shutil.ignore_patterns(*(f"*{end}" for end in BESIDE), "*.lock", "*.log", "*.log.*", "*.new")


def backup(place: Path, copy: Path) -> int:
    """Copy a folder to a new one, each database as of one moment; returns how many files."""
    if not place.is_dir():
        raise ConfigError(f"'{place}' is not a folder; give that of a SuperLink, `up` or a node")
    if copy.exists():
        raise ConfigError(f"'{copy}' exists already; choose a new folder")
    if copy.resolve().is_relative_to(place.resolve()):
        raise ConfigError(f"'{copy}' is inside '{place}'; choose a folder elsewhere")
    began, part = time.time(), copy.with_name(f"{copy.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)  # of a backup that was interrupted
        shutil.copytree(place, part, symlinks=True, ignore=LEFT, copy_function=copied)
        part.chmod(0o700)
        files = {str(file.relative_to(part)): digest(file) for file in files_in(part)}
        (part / ABOUT).write_text(json.dumps({"at": began, "files": files}))
        part.rename(copy)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"'{place}' cannot be copied to '{copy}' ({error})") from error
    return len(files)


def restore(copy: Path, place: Path) -> int:
    """Copy a backup's files back, if nobody uses their folder and nothing there is newer."""
    try:
        about = json.loads((copy / ABOUT).read_text(encoding="utf-8"))
        began, files = float(about["at"]), dict(about["files"])
        damaged = [name for name, known in files.items() if digest(copy / name) != known]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"'{copy}' is not a complete backup ({error})") from error
    if damaged:
        raise ConfigError(f"'{copy / damaged[0]}' is damaged; restore another backup")
    if used := next(users(place), None):
        raise ConfigError(f"'{place}' is used by process {used}; stop it first")
    for file in files_in(place):
        log = file.with_name(f"{file.name}-wal")  # of a database, with what was written last
        there = [each for each in (file, log) if each.exists()]
        same = there == [file] and digest(file) == files.get(str(file.relative_to(place)))
        if max(each.stat().st_mtime for each in there) > began and not same:
            raise ConfigError(
                f"'{file}' is newer than the backup and would be lost or no longer fit; move "
                f"'{place}' away, and restore again"
            )
    try:
        for name in files:
            for end in BESIDE:  # of the database that is replaced
                (place / f"{name}{end}").unlink(missing_ok=True)
        shutil.copytree(
            copy, place, symlinks=True, ignore=shutil.ignore_patterns(ABOUT), dirs_exist_ok=True
        )
    except OSError as error:
        raise ConfigError(f"'{place}' cannot be written ({error})") from error
    return len(files)


def copied(source: str, target: str) -> None:
    """Copy a file; a database, which may be written meanwhile, by SQLite."""
    with suppress(FileNotFoundError):  # it was deleted since
        with Path(source).open("rb") as file:
            database = file.read(16) == b"SQLite format 3\0"
        if not database:
            shutil.copy2(source, target)
            return
        with (
            closing(sqlite3.connect(read_only(Path(source)), uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
        shutil.copymode(source, target)


def files_in(place: Path) -> Iterator[Path]:
    """The files of a folder that a backup has, or would have."""
    for folder, _, names in os.walk(place):
        left = LEFT(folder, names) | {ABOUT}
        found = (Path(folder, name) for name in sorted(names) if name not in left)
        yield from (file for file in found if file.is_file())


def users(place: Path) -> Iterator[int]:
    """Processes that have a file of this folder open, as far as this user may see."""
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if opened.readlink().is_relative_to(place.resolve()):
                yield int(opened.parts[2])


def digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
