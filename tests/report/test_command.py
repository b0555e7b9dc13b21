"""`tunefree report` as its user types it."""

from __future__ import annotations

import csv
import json
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from tests.report.conftest import made
from tunefree.cli import main
from tunefree.plots.runs import write
from tunefree.report.content import content


def test_a_folder_becomes_a_page(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "page.html"
    assert main(["report", str(runs), "-o", str(out), "--title", "A & B"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("7 runs of 5 methods")
    assert str(out) in text
    assert "<h1>A &amp; B</h1>" in out.read_text(encoding="utf-8")


def test_the_result_as_one_object(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(runs / f"padamfed-{seed}.sqlite") for seed in (1, 2)]
    assert main(["report", *files, "-o", str(tmp_path / "p.html"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "page": str(tmp_path / "p.html"),
        "runs": 2,
        "methods": ["PAdaMFed"],
        "figures": [],
        "unreadable": [],
    }


def test_every_figure_as_svg_png_and_csv(runs: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "p.html")]
    assert main(["report", str(runs), *out, "--figures", str(tmp_path / "figures")]) == 0
    files = sorted((tmp_path / "figures").iterdir())
    names = {file.stem for file in files}
    assert names >= {
        "accuracy-by-round",
        "loss-by-round",
        "train_loss-by-round",
        "accuracy-by-bits_up",
        "accuracy-by-virtual_seconds",
        "sensitivity-eta",
        "traffic",
        "staleness",
        "classes",
        "loss-by-bits_up",
        "train_loss-by-seconds",
        "loss-by-samples",
        "loss-by-virtual_seconds",
    }
    assert len(files) == 3 * len(names)
    for name in names:
        assert ElementTree.parse(tmp_path / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
        with Image.open(tmp_path / "figures" / f"{name}.png") as image:
            assert image.width > 1000
    with (tmp_path / "figures" / "accuracy-by-round.csv").open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["method", "round", "accuracy mean", "lowest", "highest", "seeds"]
    assert [row[1] for row in rows if row[0] == "PAdaMFed"] == ["0", "2", "4", "6", "8"]


def test_figures_of_a_method_that_diverged(tmp_path: Path) -> None:
    huge = [{"t": t, "loss": loss} for t, loss in enumerate((1.0, 1.1e27, 2e300))]
    files = write(content([made("a", huge, state="diverged")]), tmp_path)
    assert {file.stem for file in files} == {"loss-by-round"}
    lines = (tmp_path / "loss-by-round.csv").read_text(encoding="utf-8").splitlines()
    assert lines[2].split(",")[2] == "1.1e+27"


def test_a_report_needs_no_torch(runs: Path) -> None:
    script = (
        "import sys; from pathlib import Path; sys.modules['torch'] = None; "
        "import tunefree.plots.runs; from tunefree.report.page import Watch; "
        "from tunefree.report.page import page; print(len(page(Watch([Path(sys.argv[1])])())))"
    )
    command = [sys.executable, "-c", script, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_verdicts_of_a_folder(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reproduction"
    folder.mkdir()
    (folder / "a.sqlite").write_bytes((runs / "padamfed-1.sqlite").read_bytes())
    row = {"claim": 1, "sentence": "As good as tuned.", "verdict": "holds"}
    (folder / "verdicts.json").write_text(json.dumps([row]))
    out = tmp_path / "p.html"
    assert main(["report", str(folder), "-o", str(out)]) == 0
    assert '"sentence":"As good as tuned."' in out.read_text(encoding="utf-8")
    (folder / "verdicts.json").write_text("{}")
    assert main(["report", str(folder), "-o", str(out)]) == 2


def test_verdicts_alone_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("holds", "holds", "does not hold")
    rows = [{"claim": n, "sentence": "So it is.", "verdict": word} for n, word in enumerate(words)]
    (tmp_path / "verdicts.json").write_text(json.dumps(rows))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 0
    assert capsys.readouterr().out.startswith("3 verdicts: 2 hold, 1 does not hold.")


def test_files_in_a_folder_that_are_not_runs_are_skipped(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "mixed", str(tmp_path / "p.html")
    folder.mkdir()
    good = (runs / "padamfed-1.sqlite").read_bytes()
    (folder / "a.sqlite").write_bytes(good)
    (folder / "damaged.sqlite").write_bytes(good[:5000] + b"\xff" * (len(good) - 5000))
    (folder / "empty.sqlite").touch()
    with closing(sqlite3.connect(folder / "foreign.sqlite")) as foreign:
        foreign.executescript("CREATE TABLE step (a); CREATE TABLE run (key, value);")
        foreign.execute("PRAGMA user_version = 2")  # as run files have it
        foreign.executescript("INSERT INTO step VALUES (1); INSERT INTO run VALUES ('a', 'b');")
        foreign.commit()
    text_file(folder).rename(folder / "text.sqlite")
    assert main(["report", str(folder), "-o", out]) == 0
    assert capsys.readouterr().out.startswith(
        "1 run of 1 method. All finished. 4 files cannot be read as a run file: "
        "damaged.sqlite, empty.sqlite, foreign.sqlite, text.sqlite.\n"
    )
    for bad in ("damaged", "empty", "foreign", "text"):
        assert main(["report", str(folder), str(folder / f"{bad}.sqlite"), "-o", out]) == 2
    (folder / "a.sqlite").unlink()
    capsys.readouterr()
    assert main(["report", str(folder), "-o", out]) == 2
    assert "text.sqlite cannot be read as one" in capsys.readouterr().err


def test_a_folder_may_be_given_with_a_part_of_it(runs: Path, tmp_path: Path) -> None:
    inside = tmp_path / "all" / "part"
    inside.mkdir(parents=True)
    (inside / "a.sqlite").write_bytes((runs / "padamfed-1.sqlite").read_bytes())
    both = [str(inside.parent), str(inside)]
    assert main(["report", *both, "-o", str(tmp_path / "p.html")]) == 0


def text_file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("not a data base, but long enough to be looked at" * 100)
    return folder / "notes.txt"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("absent", "there is no run file at"),
        ("text", "is not a run file"),
        ("empty", "there is no run file (*.sqlite) in the folder"),
        ("out", "must end in .html"),
        ("unwritable", "cannot be written"),
        ("figures", "cannot be written"),
    ],
)
def test_errors_are_one_sentence(
    kind: str, sentence: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty := tmp_path / "empty").mkdir()
    good, out = str(runs / "padamfed-1.sqlite"), str(tmp_path / "p.html")
    argv = {
        "absent": [str(tmp_path / "none.sqlite"), "-o", out],
        "text": [str(text_file(tmp_path)), "-o", out],
        "empty": [str(empty), "-o", out],
        "out": [good, "-o", good],
        "unwritable": [good, "-o", str(text_file(tmp_path) / "p.html")],
        "figures": [good, "-o", out, "--figures", str(text_file(tmp_path))],
    }[kind]
    assert main(["report", *argv]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
