"""Who may write a run file: one process at a time, until it releases the lock or ends."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from contextlib import closing
from pathlib import Path

from filelock import FileLock, Timeout

from tunefree.errors import ConfigError


def lock_path(path: Path) -> Path:
    """The file that is locked while the run is written; killed processes leave it unlocked."""
    return path.with_name(f"{path.name}.lock")


def acquire_lock(path: Path) -> FileLock:
    """The right to write a run file, until released or until the process ends."""
    file = lock_path(path)
    lock = FileLock(file, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        if not file.exists():  # filelock takes a file that cannot be created for a locked one
            raise cannot_write(path, f"'{file.name}' cannot be created there") from error
        raise ConfigError(
            f"'{path}' is being written by {writer_of(path)}; wait for it to end, or stop it"
        ) from error
    except OSError as error:
        raise cannot_write(path, error) from error
    return lock


def is_locked(path: Path | None) -> bool:
    """Whether a process is writing the run file."""
    if path is None or not lock_path(path).exists():
        return False
    lock = FileLock(lock_path(path), thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def this_process() -> dict[str, object]:
    return {"pid": os.getpid(), "host": platform.node()}


def writer_of(path: Path) -> str:
    """Who is writing a run file, as far as it is known."""
    try:
        with closing(sqlite3.connect(read_only(path), uri=True)) as reader:
            (text,) = reader.execute("SELECT value FROM run WHERE key = 'writer'").fetchone()
        who = json.loads(text)
        return f"process {who['pid']} on {who['host']}"
    except (sqlite3.Error, TypeError, ValueError, KeyError):
        return "another process"


def cannot_write(path: Path | None, reason: object) -> ConfigError:
    return ConfigError(
        f"'{path}' cannot be written ({reason}); choose a path in a folder that you may write to"
    )


def read_only(path: Path) -> str:
    return f"{path.absolute().as_uri()}?mode=ro"
