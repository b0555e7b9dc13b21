"""Reading the official files: IDX, CIFAR-10 sheets and records, IMDB reviews."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tunefree.data import stream
from tunefree.errors import ConfigError
from tunefree_evidence.datasets import text
from tunefree_evidence.datasets.fetch import LocalFile, wrong_sum

Bytes = NDArray[np.uint8]
Arrays = dict[str, NDArray[np.generic]]

ARCHIVES = (".tgz", ".tar.gz", ".zip")
REPLACE = "fetch it again or replace it"


class Content(NamedTuple):
    """The unpacked content of a file or archive member, and its name for messages."""

    raw: bytes
    where: str


def contents(files: Sequence[LocalFile], names: Sequence[str], inside: str = "") -> list[Content]:
    """The named contents, from loose files or from the folder `inside` of one archive."""
    if len(files) > 1 or not files[0].file.name.endswith(ARCHIVES):
        by_name = {one.file.name: one for one in files}
        return [checked_content(by_name[name]) for name in names]
    path, full = checked_archive(files[0]), {inside + name for name in names}
    members = {
        name.removesuffix(".gz"): gunzip(raw, f"{name} in {path}") if name.endswith(".gz") else raw
        for name, raw in archive_members(path, lambda name: name.removesuffix(".gz") in full)
    }
    if missing := full - set(members):
        raise ConfigError(f"{path} lacks {min(missing)}; {REPLACE}")
    return [Content(members[inside + name], f"{name} in {path}") for name in names]


def checked_archive(file: LocalFile) -> Path:
    """The archive's path, after checking its checksum."""
    if actual := wrong_sum(file.path, file.file.sum):
        raise bad_sum(str(file.path), actual, file.file.sum)
    return file.path


def checked_content(file: LocalFile) -> Content:
    """A loose file's content, after checking its checksum (if one is known)."""
    where = str(file.path)
    raw = file.path.read_bytes()
    raw = gunzip(raw, where) if file.path.suffix == ".gz" else raw
    if file.file.name.endswith("-ubyte"):
        parse_idx(Content(raw, where))  # its errors say more than a checksum, so it comes first
    check_bytes(raw, where, file.file.sum)
    return Content(raw, where)


def check_bytes(raw: bytes | memoryview, where: str, expected: str) -> None:
    """Refuse bytes with another checksum (an empty one is not checked)."""
    kind, _, digest = expected.partition(":")
    if kind and (actual := hashlib.new(kind, raw).hexdigest()) != digest:
        raise bad_sum(where, actual, expected)


def bad_sum(where: str, actual: str, expected: str) -> ConfigError:
    kind, _, digest = expected.partition(":")
    return ConfigError(
        f"{where} has the {kind} checksum {actual} where the official one is {digest}; it is "
        f"another file or damaged, {REPLACE}"
    )


def archive_members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the wanted members, in the archive's order; nothing is extracted."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in filter(wanted, archive.namelist()):
                    yield name, archive.read(name)
            return
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                if wanted(member.name) and (content := tar.extractfile(member)):
                    yield member.name, content.read()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        raise ConfigError(
            f"{path} is not a complete archive ({error}); it was cut short or damaged, {REPLACE}"
        ) from None


def gunzip(raw: bytes, where: str) -> bytes:
    """The content of a gzip file."""
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise ConfigError(
            f"{where} is not a complete gzip file ({error}); it was cut short or damaged, {REPLACE}"
        ) from None


def parse_idx(content: Content) -> Bytes:
    """The array of unsigned bytes in an IDX file."""
    raw, where = content
    dimensions = raw[3] if len(raw) >= 4 else 0
    if raw[:3] != b"\0\0\x08" or not 1 <= dimensions <= 4:
        raise ConfigError(
            f"{where} is not an IDX file of bytes: it starts with {raw[:4].hex() or 'nothing'}, "
            f"not with 000008 and the number of dimensions; {REPLACE}"
        )
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, start, 4))
    expected = start + int(np.prod(shape, dtype=np.int64))
    if len(raw) != expected:
        raise ConfigError(
            f"{where} declares {expected} bytes but has {len(raw)}; it was cut short or "
            f"damaged, {REPLACE}"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def images_and_labels(images: Content, labels: Content) -> tuple[Bytes, Bytes]:
    """An image array and its labels, after checking that there is one label per image."""
    x, y = parse_idx(images), parse_idx(labels)
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise ConfigError(
            f"{images.where} has an array of shape {x.shape} and {labels.where} one of {y.shape};"
            " there must be one label per image, so take both files from the same copy"
        )
    return x, y


def read_idx(
    files: Sequence[LocalFile], names: Sequence[str], inside: str = "", transposed: bool = False
) -> Arrays:
    """Train and test from four IDX files, named in the order images, labels, images, labels."""
    four = contents(files, names, inside)
    arrays: Arrays = {}
    for split, pair in (("train", four[:2]), ("test", four[2:])):
        x, y = images_and_labels(*pair)
        arrays[f"x_{split}"] = x.swapaxes(1, 2) if transposed else x
        arrays[f"y_{split}"] = y
    return arrays


def read_emnist_part(
    files: Sequence[LocalFile],
    names: Sequence[str],
    test_size: int,
    per_class: tuple[int, int] | None = None,
) -> Arrays:
    """A disjoint 47-class train and test set from the two official test splits, which overlap.

    The last `test_size` ByClass characters are the test set; training takes the others and those
    ByMerge characters that the mask does not find among the ByClass ones. With `per_class`, so many
    of each class are drawn from all of them for train and test instead.
    """
    *idx_files, mask, byclass_map, bymerge_map = contents(files, names)
    x_class, y_class = images_and_labels(*idx_files[:2])
    x_merge, y_merge = images_and_labels(*idx_files[2:])
    characters, classes = parse_mapping(byclass_map), parse_mapping(bymerge_map)
    merge = np.array(
        [classes.index(c if c in classes else c.upper()) for c in characters], np.uint8
    )
    new, first = parse_idx(mask) == 0, len(y_class) - test_size
    x = np.concatenate([x_class[:first], x_merge[new], x_class[first:]])
    y = np.concatenate([merge[y_class[:first]], y_merge[new], merge[y_class[first:]]])
    train, test = np.arange(len(y) - test_size), np.arange(len(y) - test_size, len(y))
    if per_class:
        rng = stream(0, "emnist part balanced")
        places = np.stack(
            [rng.permutation(np.flatnonzero(y == k))[: sum(per_class)] for k in range(len(classes))]
        )
        train = rng.permutation(places[:, : per_class[0]].ravel())
        test = rng.permutation(places[:, per_class[0] :].ravel())
    x = x.swapaxes(1, 2)
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


def parse_mapping(content: Content) -> list[str]:
    """The characters in the order of their labels."""
    try:
        return [chr(int(line.split()[1])) for line in content.raw.decode("ascii").splitlines()]
    except (ValueError, IndexError):
        raise ConfigError(
            f"{content.where} is not an EMNIST mapping of lines 'label code'; {REPLACE}"
        ) from None


def read_cifar_sheets(files: Sequence[LocalFile], sums: Sequence[str]) -> Arrays:
    """CIFAR-10 from PNG sheets with one image per row of pixels, and labels in JSON."""
    from PIL import Image, UnidentifiedImageError

    sheets = [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png"]
    labels = ["train_lables.json", "test_lables.json"]  # the package's spelling
    *pictures, train, test = contents(files, sheets + labels, inside="package/")
    rows = []
    for raw, where in pictures:
        try:
            rows.append(np.asarray(Image.open(io.BytesIO(raw))).reshape(-1, 32, 32, 3))
        except (UnidentifiedImageError, OSError, ValueError) as error:
            raise ConfigError(
                f"{where} is not a PNG sheet of 32x32 colour images ({error}); {REPLACE}"
            ) from None
    y_train, y_test = parse_labels(train), parse_labels(test)
    return cifar_arrays(np.concatenate(rows[:-1]), y_train, rows[-1], y_test, files[0], sums)


def parse_labels(content: Content) -> Bytes:
    """A JSON list of small integers."""
    try:
        return np.array(json.loads(content.raw), dtype=np.uint8)
    except (ValueError, OverflowError, TypeError):
        raise ConfigError(f"{content.where} is not a JSON list of labels; {REPLACE}") from None


def read_cifar_records(files: Sequence[LocalFile], sums: Sequence[str]) -> Arrays:
    """CIFAR-10 from the official binary records: a label, then red, green and blue planes."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    batches = []
    for raw, where in contents(files, names, inside="cifar-10-batches-bin/"):
        if len(raw) % 3073:
            raise ConfigError(f"{where} does not consist of records of 3073 bytes; {REPLACE}")
        batches.append(np.frombuffer(raw, np.uint8).reshape(-1, 3073))
    train, test = np.concatenate(batches[:-1]), batches[-1]
    x_train, x_test = (b[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for b in (train, test))
    return cifar_arrays(x_train, train[:, 0], x_test, test[:, 0], files[0], sums)


def cifar_arrays(
    x_train: Bytes,
    y_train: Bytes,
    x_test: Bytes,
    y_test: Bytes,
    file: LocalFile,
    sums: Sequence[str],
) -> Arrays:
    """Images with the channels first, after checking the checksums of pixels and labels."""
    arrays = (x_train, y_train, x_test, y_test)
    for what, array, expected in zip(
        ("training images", "training labels", "test images", "test labels"),
        arrays,
        sums,
        strict=True,
    ):
        raw = np.ascontiguousarray(array).data
        check_bytes(raw, f"the array of {what} in {file.path}", expected)
    return {
        "x_train": x_train.transpose(0, 3, 1, 2),
        "y_train": y_train,
        "x_test": x_test.transpose(0, 3, 1, 2),
        "y_test": y_test,
    }


Review = tuple[int, str]  # label, text


def read_imdb_json(files: Sequence[LocalFile], words: int) -> Arrays:
    """IMDB from one list of reviews in the order test/neg, train/neg, test/pos, train/pos."""
    (content,) = contents(files, ["reviews.json"], inside="package/")
    try:
        reviews = [(int(entry["s"]), str(entry["t"])) for entry in json.loads(content.raw)]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{content.where} is not a JSON list of reviews with a text 't' and a label 's'; "
            f"{REPLACE}"
        ) from None
    quarter = len(reviews) // 4
    quarters = [reviews[at : at + quarter] for at in range(0, 4 * quarter, quarter)]
    return imdb_arrays(quarters[1] + quarters[3], quarters[0] + quarters[2], words)


def read_imdb_tar(files: Sequence[LocalFile], words: int) -> Arrays:
    """IMDB from the official archive of one small file per review."""
    splits: dict[str, list[Review]] = {"train": [], "test": []}

    def is_labelled(name: str) -> bool:
        parts = name.split("/")
        return len(parts) == 4 and parts[1] in splits and parts[2] in ("neg", "pos")

    for name, raw in archive_members(checked_archive(files[0]), is_labelled):
        _, split, sentiment, _ = name.split("/")
        splits[split].append((int(sentiment == "pos"), raw.decode("utf-8")))
    return imdb_arrays(splits["train"], splits["test"], words)


def imdb_arrays(train: list[Review], test: list[Review], words: int) -> Arrays:
    """Token ids in an order that depends on the reviews only: sorted, then shuffled."""
    arrays: Arrays = {}
    vocabulary: tuple[str, ...] = ()
    for split, reviews in (("train", train), ("test", test)):
        reviews = sorted(reviews)
        order = stream(0, f"imdb {split}").permutation(len(reviews))
        texts = [text.words_of(reviews[i][1]) for i in order]
        vocabulary = vocabulary or text.vocabulary(texts, words)
        tokens, starts = text.encode(texts, vocabulary)
        arrays[f"x_{split}"], arrays[f"starts_{split}"] = tokens, starts
        arrays[f"y_{split}"] = np.array([reviews[i][0] for i in order], dtype=np.uint8)
    return arrays | {"words": np.array(vocabulary)}
