"""`tunefree tune` with privacy: what the whole search spends, and on what its trials are scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.search.small import FLAGS, run_here, run_scripted, settings
from tunefree.cli import main
from tunefree.core import System
from tunefree.errors import ConfigError
from tunefree.privacy.promise import Privacy
from tunefree.record import Record
from tunefree.report.content import content
from tunefree.report.files import find
from tunefree.search import batch
from tunefree.search.tuning import TuningResult, tune
from tunefree.settings import Settings

IN_TURN = {"epsilon": 8.0, "participations": 4}  # exact, and without another package
SYS = System(N=6, S=3, K=2, T=8)
ONE = Privacy(8, participations=4).in_a(SYS)


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tuned(
    monkeypatch: pytest.MonkeyPatch, etas: tuple[float, ...], seeds: int = 1, **more: int
) -> TuningResult:
    """A search whose trials train nothing; the larger eta, the better."""

    def curve(config: Settings) -> list[float]:
        eta = config.option["eta"]
        assert isinstance(eta, float)
        return [eta / 10] * SYS.T

    monkeypatch.setattr(batch, "run_all", run_scripted(curve))
    asked = settings("fedavg", **IN_TURN)
    return tune(asked, {"eta": etas}, list(range(seeds)), Path("x"), budget=more.get("budget"))


@pytest.mark.parametrize(
    ("seeds", "budget", "runs"), [(1, {}, 5), (2, {}, 10), (2, {"budget": 3}, 6)]
)
def test_every_trial_counts_in_full_also_a_pruned_one(
    seeds: int, budget: dict[str, int], runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuned(monkeypatch, (0.1, 0.3, 1.0, 3.0, 9.0), seeds, **budget)
    assert found.bill["epsilon"] == found.epsilon == ONE.spent(runs * 4) > 2 * ONE.spent(4)


def test_a_private_search_does_not_grow_beyond_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = tuned(monkeypatch, (0.1, 0.3))
    assert found.edges  # without privacy it would grow here
    assert len(found.trials) == 2
    assert found.epsilon == ONE.spent(2 * 4)


def test_secret_coins_are_counted_too() -> None:
    pytest.importorskip("dp_accounting")
    promise = Privacy(8).in_a(SYS)
    assert promise.of_runs(1) == pytest.approx(8, rel=1e-3)
    assert 1.5 * 8 < promise.of_runs(4) < 4 * 8


def test_the_command_says_what_the_search_spends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "run_all", run_here)
    private = [
        "--epsilon",
        "8",
        "--participations",
        "4",
        "--clip",
        "1",
        "--grid",
        "eta=0.1,0.3",
        "--out",
        "x",
    ]
    assert main(["tune", "fedavg", *FLAGS, *private]) == 0
    out = capsys.readouterr().out
    spent = ONE.of_runs(2)
    assert f"privacy: the whole search spends epsilon = {spent:.3g}, each trial" in out
    assert "test accuracy" in out
    assert "validation" not in out
    saved = json.loads(Path("x/tuned.json").read_text())
    assert (saved["validation"], saved["bill"]["epsilon"]) == (0, spent)
    for path in Path("x").glob("*.sqlite"):
        assert "train_loss" not in Record.open(path).history()[-1]

    final = ["--epsilon", "8", "--participations", "4", "--clip", "1", "--seeds", "0", "--out", "y"]
    assert main(["compare", "fedavg@x/tuned.json", *FLAGS, *final]) == 0
    rows = content(find([Path("y")]).runs)["privacy"]
    assert {part: words for _, part, words in rows}["epsilon of the search before"] == (
        f"{spent:.3g}"
    )


def test_samples_of_clients_cannot_score_a_private_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "run_all", run_here)
    asked = settings("fedavg", **IN_TURN, clip=1.0, validation=0.2)
    with pytest.raises(ConfigError, match="scores that are computed on clients'"):
        tune(asked, {"eta": (0.1,)}, [0], Path("x"))


def test_a_search_over_private_records_counts_every_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "run_all", run_scripted(lambda config: [0.5] * SYS.T))
    asked = settings("fedavg", epsilon=8.0, unit="record")
    found = tune(asked, {"eta": (0.1, 0.3)}, [0], Path("x"))
    assert 8 < found.epsilon < 16  # of two runs that spend 8 each
