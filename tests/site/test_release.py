"""What is released: a wheel that is whole, an sdist that is small, a changelog, a citation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.making import changelog

ROOT = Path(__file__).parents[2]
VERSION = changelog.version()
WHEEL, SDIST = f"tunefree-{VERSION}-py3-none-any.whl", f"tunefree-{VERSION}.tar.gz"


def run(*words: object, **more: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and a wheel built from it."""
    if find_spec("build") is None or find_spec("hatchling") is None:
        pytest.skip("build and hatchling are not installed")
    folder = tmp_path_factory.mktemp("release")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_the_wheel_holds_the_whole_package(dist: Path) -> None:
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        names = set(wheel.namelist())
    files = [path for path in (ROOT / "src" / "tunefree").rglob("*") if path.is_file()]
    ours = {str(f.relative_to(ROOT / "src")) for f in files if "__pycache__" not in f.parts}
    assert ours - names == set()
    assert "tunefree/py.typed" in names
    assert not [name for name in names if not name.startswith(("tunefree/", "tunefree-"))]
    assert not [name for name in names if "tunefree_evidence" in name]
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        (offers,) = (name for name in names if name.endswith("entry_points.txt"))
        assert not re.search("Requires-Dist: (pooch|pillow)", wheel.read(metadata).decode())
        assert "evidence" not in wheel.read(offers).decode()


def test_the_sdist_is_small_and_has_what_a_build_needs(dist: Path) -> None:
    with tarfile.open(dist / SDIST) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/tunefree/py.typed"} <= names
    assert not [name for name in names if "evidence" in name and name.endswith(".png")]
    assert (dist / SDIST).stat().st_size < 2_000_000


def test_what_the_wheel_brings_trains(dist: Path, tmp_path: Path) -> None:
    """Unpacked on its own, with the packages that are installed here."""
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        wheel.extractall(tmp_path / "unpacked")
    there = {**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")}
    command = (sys.executable, "-m", "tunefree.cli")
    assert run(*command, "--version", cwd=tmp_path, env=there) == f"tunefree {VERSION}\n"
    told = run(*command, "run", "--rounds", "3", cwd=tmp_path, env=there)
    assert "test accuracy" in told


@pytest.mark.slow
def test_the_wheel_trains_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    bin = tmp_path / "venv" / "bin"
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quiet = ("--quiet", "--disable-pip-version-check")
    constraints = ("-c", ROOT / "constraints.txt")
    run(bin / "pip", "install", *quiet, *constraints, dist / WHEEL, env=bare)
    command = bin / "tunefree"
    assert run(command, "--version", cwd=tmp_path, env=bare) == f"tunefree {VERSION}\n"
    assert "test accuracy" in run(command, "run", "--rounds", "3", cwd=tmp_path, env=bare)
    words = [str(command), "run", "--data", "fashion-mnist"]
    refused = subprocess.run(words, cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert "is offered by the package tunefree-evidence, which is not" in refused.stderr


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {VERSION}\n" in text
    assert all(f"\n{key}:" in f"\n{text}" for key in ("cff-version", "message", "title", "authors"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nHow.\n\n## 0.1.0 (then)\n\nOld.\n")
    for name, text in (
        ("12.added.md", "A moon.\nIt shines.\n\nA sun.\n"),
        ("3.added.md", "A star.\n"),
        ("7.fixed.md", "The sky.\n"),
        ("sea.fixed.md", "The sea.\n"),
    ):
        (tmp_path / "changelog.d" / name).write_text(text)
    return tmp_path


def test_fragments_become_a_section_before_the_older_ones(project: Path) -> None:
    changelog.fold(project, "0.2.0 (now)")
    assert (project / "CHANGELOG.md").read_text() == (
        "# Changelog\n\nHow.\n\n## 0.2.0 (now)\n\n### Added\n\n- A star.\n- A moon.\n  It shines.\n"
        "- A sun.\n\n### Fixed\n\n- The sky.\n- The sea.\n\n## 0.1.0 (then)\n\nOld.\n"
    )
    assert not list((project / "changelog.d").iterdir())


def test_a_version_is_not_gathered_twice(project: Path) -> None:
    with pytest.raises(SystemExit, match=r"0\.1\.0 is in CHANGELOG.md already"):
        changelog.fold(project, "0.1.0 (now)")


def test_a_fragment_with_a_wrong_name_is_refused(project: Path) -> None:
    (project / "changelog.d" / "9.new.md").write_text("Lost?")
    with pytest.raises(SystemExit, match=r"9\.new\.md is not called NAME"):
        changelog.section("x", project)


def test_our_own_fragments_can_be_gathered() -> None:
    if any(changelog.fragments().values()):
        assert changelog.section("Next").startswith("## Next\n\n### ")
