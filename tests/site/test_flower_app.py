"""The page "No learning rate in your Flower app": its patch turns the example into what it says."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import Strategy

from tests.flower.nodes import Answering

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "flower_app"
PATCH = APP / "no_learning_rate.patch"
PAGE = ROOT / "docs" / "your-flower-app.md"


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "app"
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", "-p1", str(PATCH)], cwd=folder, check=True)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.startswith("digits_app")]:
        del sys.modules[name]


def test_at_most_ten_lines_change_and_the_page_shows_them() -> None:
    lines = PATCH.read_text("utf-8").splitlines()
    changed = [line for line in lines if line[:3] not in ("+++", "---") and line[1:].strip()]
    assert 5 < len([line for line in changed if line.startswith("+")]) <= 10
    shown = PAGE.read_text("utf-8").splitlines()
    assert all(line in shown for line in changed if line[0] in "+-")


def test_the_converted_app_learns(converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = (import_module(f"digits_app.{name}_app") for name in ("client", "server"))
    assert Path(str(server.__file__)).is_relative_to(converted)
    found: list[Any] = []
    start = Strategy.start

    def started(*args: Any, **options: Any) -> Any:
        found.append(start(*args, **options))
        return found[0]

    monkeypatch.setattr(Strategy, "start", started)
    random.seed(0)
    run_config: Any = {"num-server-rounds": 12, "fraction-train": 0.5, "local-epochs": 1}
    context = Context(1, 1, {}, RecordDict(), run_config)
    server.main(Answering(client.app, 10, run_config), context)
    scores = found[0].evaluate_metrics_serverapp
    assert scores[12]["accuracy"] > 0.7 > scores[0]["accuracy"]


@pytest.mark.slow
def test_the_page_in_flowers_simulation(converted: Path, tmp_path: Path) -> None:
    """Real `flwr run`, with Ray; the SuperLink that it leaves is ended by its number."""
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    home = {"FLWR_HOME": str(tmp_path / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
    command = [str(Path(sys.executable).with_name("flwr")), "run", ".", "--stream"]
    command += ["--federation-config", "num-supernodes=10"]
    command += ["--run-config", "num-server-rounds=12"]
    before = set(psutil.pids())
    try:
        done = subprocess.run(
            command,
            cwd=converted,
            env=os.environ | home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
            check=True,
        )
    finally:
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = " ".join(process.info["cmdline"] or ())
            if process.pid not in before and home["FLWR_HOME"] in words:
                process.terminate()
    assert "(10 simulated SuperNodes)" in done.stdout
    (last,) = re.findall(r"12: \{.*'accuracy': '(\S+?)'", done.stdout)
    assert float(last) > 0.7
