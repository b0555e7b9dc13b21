"""The real formats, read from tiny files; every kind of bad file gives one clear error."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from evidence.tests.datasets import files
from tunefree.errors import ConfigError
from tunefree_evidence.datasets import formats
from tunefree_evidence.datasets.fetch import File, LocalFile
from tunefree_evidence.datasets.official import EMNIST_SUMS


def one(path: Path, raw: bytes, name: str = "") -> list[LocalFile]:
    """A file with this content, and its own checksum as the expected one."""
    path.write_bytes(raw)
    content = gzip.decompress(raw) if path.suffix == ".gz" and not name else raw
    return [LocalFile(File(name or path.name.removesuffix(".gz"), files.sum_of(content)), path)]


@pytest.mark.parametrize("shape", [(7,), (3, 2, 5)])
def test_idx_comes_back(shape: tuple[int, ...]) -> None:
    array = files.pixels(*shape)
    back = formats.parse_idx(formats.Content(files.idx_bytes(array), "a file"))
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"\x89PNG\r\n", "not an IDX file of bytes: it starts with 89504e47"),
        (b"", "it starts with nothing"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "declares 13 bytes but has 11; it was cut short"),
        (b"\0\0\x0d\x01\0\0\0\x01abcd", "not an IDX file of bytes: it starts with 00000d01"),
    ],
)
def test_bad_idx_says_what_is_wrong(raw: bytes, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"my-file .*{sentence}"):
        formats.parse_idx(formats.Content(raw, "my-file"))


def test_images_and_labels_must_pair_up() -> None:
    images = formats.Content(files.idx_bytes(files.pixels(5, 2, 2)), "images.gz")
    labels = formats.Content(files.idx_bytes(files.labels(4, 2)), "labels.gz")
    with pytest.raises(ConfigError, match=r"images.gz .* \(5, 2, 2\) and labels.gz one of \(4,\)"):
        formats.images_and_labels(images, labels)


def test_emnist_zip_is_read_and_turned_upright(tmp_path: Path) -> None:
    names = [f"emnist-balanced-{part}-ubyte" for part in ("a", "b", "c", "d")]
    x = files.pixels(6, 4, 4)
    arrays = (x, files.labels(6, 3), x[:2], files.labels(2, 3))
    members = {
        f"gzip/{name}.gz": files.packed(files.idx_bytes(array))
        for name, array in zip(names, arrays, strict=True)
    }
    local = one(tmp_path / "gzip.zip", files.zip_bytes(members))
    back = formats.read_idx(local, names, inside="gzip/", transposed=True)
    np.testing.assert_array_equal(back["x_train"], x.swapaxes(1, 2))
    np.testing.assert_array_equal(back["y_test"], files.labels(2, 3))
    with pytest.raises(ConfigError, match=r"gzip.zip lacks gzip/another"):
        formats.read_idx(local, [*names[:3], "another"], inside="gzip/")


def emnist_part_files(folder: Path) -> list[LocalFile]:
    """Characters '0', 'C', 'c', 'a': four classes in ByClass, of which ByMerge joins C and c."""
    byclass, bymerge = files.pixels(12, 4, 4), files.pixels(8, 4, 4, seed=1)
    overlap = np.array([1, 0, 0, 0, 1, 0, 0, 0], np.uint8)
    raws = (
        files.idx_bytes(byclass),
        files.idx_bytes(files.labels(12, 4)),
        files.idx_bytes(bymerge),
        files.idx_bytes(files.labels(8, 3)),
        files.idx_bytes(overlap),
        b"0 48\n1 67\n2 99\n3 97\n",
        b"0 48\n1 67\n2 97\n",
    )
    local = []
    for name, raw in zip(EMNIST_SUMS, raws, strict=True):
        (folder / name).write_bytes(raw)
        local.append(LocalFile(File(name, files.sum_of(raw)), folder / name))
    return local


def test_emnist_part_is_disjoint_and_merges_cases(tmp_path: Path) -> None:
    arrays = formats.read_emnist_part(emnist_part_files(tmp_path), tuple(EMNIST_SUMS), test_size=4)
    byclass, bymerge = files.pixels(12, 4, 4), files.pixels(8, 4, 4, seed=1)
    new = [1, 2, 3, 5, 6, 7]
    np.testing.assert_array_equal(
        arrays["x_train"], np.concatenate([byclass[:8], bymerge[new]]).swapaxes(1, 2)
    )
    np.testing.assert_array_equal(arrays["x_test"], byclass[8:].swapaxes(1, 2))
    assert arrays["y_test"].tolist() == [0, 1, 1, 2]
    assert arrays["y_train"].tolist() == [0, 1, 1, 2] * 2 + [1, 2, 0, 2, 0, 1]


def test_emnist_part_balanced_draws_as_many_of_each_class(tmp_path: Path) -> None:
    arrays = formats.read_emnist_part(
        emnist_part_files(tmp_path), tuple(EMNIST_SUMS), test_size=4, per_class=(3, 2)
    )
    assert np.bincount(np.asarray(arrays["y_train"], np.int64)).tolist() == [3, 3, 3]
    assert np.bincount(np.asarray(arrays["y_test"], np.int64)).tolist() == [2, 2, 2]
    train = {bytes(image) for image in np.asarray(arrays["x_train"])}
    assert not train & {bytes(image) for image in np.asarray(arrays["x_test"])}


def test_bad_mapping_is_named() -> None:
    with pytest.raises(ConfigError, match=r"mapping.txt is not an EMNIST mapping"):
        formats.parse_mapping(formats.Content(b"0 zero\n", "mapping.txt"))


def cifar_sheets(x: files.Bytes, y: list[int]) -> dict[str, bytes]:
    """Five train sheets of two images each and one test sheet, from twelve images."""
    sheets = [files.png_bytes(x[i : i + 2].reshape(2, 1024, 3)) for i in range(0, 12, 2)]
    names = [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png"]
    members = {f"package/{name}": raw for name, raw in zip(names, sheets, strict=True)}
    members["package/train_lables.json"] = files.json_bytes(y[:10])
    members["package/test_lables.json"] = files.json_bytes(y[10:])
    return members


def test_cifar_sheets_and_records_give_the_same_arrays(tmp_path: Path) -> None:
    x, y = files.pixels(12, 32, 32, 3), [*range(10), 3, 4]
    sums = [
        files.sum_of(part.tobytes())
        for part in (x[:10], np.array(y[:10], np.uint8), x[10:], np.array(y[10:], np.uint8))
    ]
    sheets = formats.read_cifar_sheets(
        one(tmp_path / "sheets.tgz", files.tgz_bytes(cifar_sheets(x, y))), sums
    )
    records = [bytes([y[i]]) + x[i].transpose(2, 0, 1).tobytes() for i in range(12)]
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    members = {
        f"cifar-10-batches-bin/{name}": b"".join(records[2 * i : 2 * i + 2])
        for i, name in enumerate(names)
    }
    archive = tmp_path / "cifar-10-binary.tar.gz"
    binary = formats.read_cifar_records(one(archive, files.tgz_bytes(members), archive.name), sums)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(sheets[name], binary[name])
    np.testing.assert_array_equal(sheets["x_train"], x[:10].transpose(0, 3, 1, 2))
    with pytest.raises(ConfigError, match=r"the array of test labels in .* sha256 checksum"):
        formats.read_cifar_sheets(
            one(tmp_path / "sheets.tgz", files.tgz_bytes(cifar_sheets(x, [*range(10), 3, 5]))), sums
        )


@pytest.mark.parametrize(
    ("member", "raw", "sentence"),
    [
        ("data_batch_2.png", b"not a picture", "data_batch_2.png in .* is not a PNG sheet"),
        ("test_lables.json", b"{", "test_lables.json in .* is not a JSON list of labels"),
        ("train_lables.json", b"[700]", "train_lables.json in .* is not a JSON list of labels"),
    ],
)
def test_bad_cifar_members_are_named(
    tmp_path: Path, member: str, raw: bytes, sentence: str
) -> None:
    members = cifar_sheets(files.pixels(12, 32, 32, 3), [0] * 12) | {f"package/{member}": raw}
    with pytest.raises(ConfigError, match=sentence):
        formats.read_cifar_sheets(one(tmp_path / "a.tgz", files.tgz_bytes(members)), [""] * 4)


REVIEWS = [
    ("test", 0, "Bad, bad film."),
    ("test", 0, "Not good"),
    ("train", 0, "A bad film<br /><br />bad!"),
    ("train", 0, "dull"),
    ("test", 1, "Unseen words here"),
    ("test", 1, "good"),
    ("train", 1, "A good film"),
    ("train", 1, "It's good; good"),
]


def test_imdb_json_and_tar_give_the_same_tokens(tmp_path: Path) -> None:
    listed = files.json_bytes([{"t": text, "s": label} for _, label, text in REVIEWS])
    package = one(tmp_path / "imdb.tgz", files.tgz_bytes({"package/reviews.json": listed}))
    members = {
        f"aclImdb/{split}/{'pos' if label else 'neg'}/{i}_7.txt": text.encode()
        for i, (split, label, text) in enumerate(reversed(REVIEWS))
    } | {"aclImdb/train/unsup/0_0.txt": b"ignored", "aclImdb/README": b"ignored"}
    archive = tmp_path / "aclImdb_v1.tar.gz"
    official = one(archive, files.tgz_bytes(members), archive.name)
    a = formats.read_imdb_json(package, words=8)
    b = formats.read_imdb_tar(official, words=8)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    assert a["words"].tolist()[2:] == ["good", "a", "bad", "film", "dull", "it's"]
    assert sorted(a["y_train"].tolist()) == [0, 0, 1, 1]
    assert "unseen" not in a["words"].tolist()


def test_bad_reviews_are_named(tmp_path: Path) -> None:
    raw = files.tgz_bytes({"package/reviews.json": b'[{"text": "no label"}]'})
    with pytest.raises(ConfigError, match=r"reviews.json in .* is not a JSON list of reviews"):
        formats.read_imdb_json(one(tmp_path / "imdb.tgz", raw), words=10)


def test_truncated_archive_without_known_sum_is_named(tmp_path: Path) -> None:
    raw = files.tgz_bytes({"package/reviews.json": bytes(files.pixels(5000))})
    (tmp_path / "cut.tgz").write_bytes(raw[:2000])
    with pytest.raises(ConfigError, match=r"cut.tgz is not a complete archive"):
        list(formats.archive_members(tmp_path / "cut.tgz", lambda name: True))
    (tmp_path / "cut.zip").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"cut.zip is not a complete archive"):
        list(formats.archive_members(tmp_path / "cut.zip", lambda name: True))
