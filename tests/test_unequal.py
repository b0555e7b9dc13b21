"""Clients with unequal amounts of data: local epochs, weights and odds."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tunefree.cli import main
from tunefree.core import System, stream
from tunefree.errors import ConfigError
from tunefree.record import Record
from tunefree.run.run import Run, prepare, resume_command
from tunefree.schedule.membership import cohort
from tunefree.settings import load

pytestmark = pytest.mark.filterwarnings("ignore:the formula gives beta ")
SIZES = (3, 8, 9, 20, 33, 50)
Clients = list[tuple[torch.Tensor, torch.Tensor]]


def clients(sizes: tuple[int, ...] = SIZES) -> Clients:
    rng = torch.Generator().manual_seed(0)
    xs = [torch.randn(n, 4, generator=rng) for n in sizes]
    return [(x, (x[:, :3] + 0.3 * i).argmax(dim=1)) for i, x in enumerate(xs)]


def fit(data: Clients | None = None, **settings: Any) -> Run:
    torch.manual_seed(0)
    usual: dict[str, Any] = {"rounds": 6, "per_round": 3, "batch_size": 8, "fleet": "serial"}
    return tunefree.train(nn.Linear(4, 3), data or clients(), progress=False, **(usual | settings))


# Local epochs.


@pytest.mark.parametrize("algorithm", ["polarfl", "padamfed", "scaffold", "fednova", "fafed"])
def test_equal_clients_have_the_bits_of_local_steps(algorithm: str) -> None:
    data = clients((18, 20, 24, 17))  # three batches of 8 each
    epochs = fit(data, algorithm=algorithm, local_epochs=2)
    assert epochs.theta_sha256 == fit(data, algorithm=algorithm, local_steps=6).theta_sha256
    assert epochs.theta_sha256 != fit(data, algorithm=algorithm, local_steps=5).theta_sha256


def test_an_epoch_draws_every_sample_once() -> None:
    run = fit(algorithm="padamfed", local_epochs=2, per_round=6, rounds=3)
    assert run.history[-1]["samples"] == 2 * sum(SIZES) * (1 + 3)  # the opening too


def test_k_is_the_mean_of_the_clients_own(tmp_path: Path) -> None:
    run = fit(algorithm="padamfed", local_epochs=2, out=tmp_path / "a.sqlite")
    steps = [2 * batches for batches in (1, 1, 2, 3, 5, 7)]
    assert run.algo.sys.K == round(sum(steps) / 6) == 6
    facts = Record.open(tmp_path / "a.sqlite").facts()
    assert facts.system["K"] == 6
    assert facts.settings["local_steps"] is None  # seeds may split the data differently
    assert facts.settings["local_epochs"] == 2


def test_steps_and_epochs_cannot_be_combined(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="local_steps = 3 and local_epochs = 1 cannot be"):
        fit(local_steps=3, local_epochs=1)
    assert main(["run", "--local-steps", "3", "--local-epochs", "1"]) == 2
    assert "give --local-steps or --local-epochs" in capsys.readouterr().err


# The same bits on every fleet.

UNEQUAL: dict[str, Any] = {"local_epochs": 1, "sampling": "examples"}
BUFFERED = tunefree.Schedule("buffered", concurrency=4)


@pytest.mark.parametrize(
    ("algorithm", "schedule"),
    [("polarfl", tunefree.Schedule()), ("fedadam", BUFFERED)],
    ids=["sync", "buffered"],
)
def test_a_pool_has_the_bits_of_one_process(algorithm: str, schedule: tunefree.Schedule) -> None:
    more = {"weighting": "examples"} if algorithm == "fedadam" else {}
    choices = {**UNEQUAL, "algorithm": algorithm, "schedule": schedule, **more}
    pool = fit(fleet="pool", workers=2, **choices)
    assert pool.theta_sha256 == fit(**choices).theta_sha256


KEYS: dict[str, Any] = {
    **{"clients": 8, "per_round": 3, "rounds": 7, "local_epochs": 1},
    **{"sampling": "examples", "model": "logistic", "fleet": "serial"},
}


@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": "polarfl"},
        {"algorithm": "scaffold", "schedule": "buffered", "concurrency": 5},
        {"algorithm": "fedprox", "weighting": "examples"},
    ],
    ids=["polarfl", "late", "weighted"],
)
def test_a_stopped_run_resumes_bit_for_bit(more: dict[str, Any], tmp_path: Path) -> None:
    whole, cut = (
        prepare(load(None, KEYS | more | {"out": str(tmp_path / name)}))
        for name in ("whole.sqlite", "cut.sqlite")
    )
    for _ in whole:
        pass
    rows = iter(cut)
    list(islice(rows, 4))
    rows.close()
    rest = resume_command(tmp_path / "cut.sqlite", "serial")
    assert [row["t"] for row in rest] == [3, 4, 5, 6]
    assert rest.theta_sha256 == whole.theta_sha256


def test_a_run_does_not_resume_as_another(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    fit(algorithm="scaffold", out=path, **UNEQUAL)
    for sizes in ((3, 8, 9, 20, 33, 49), (8, 3, 9, 20, 33, 50)):
        torch.manual_seed(0)
        with pytest.raises(ConfigError, match="cannot be resumed: its clients' data was"):
            tunefree.resume(path, nn.Linear(4, 3), clients(sizes), rounds=9)
    torch.manual_seed(0)
    again = tunefree.resume(path, nn.Linear(4, 3), clients(), rounds=9, progress=False)
    assert again.theta_sha256 == fit(algorithm="scaffold", rounds=9, **UNEQUAL).theta_sha256


# Which clients are sampled.


@pytest.mark.parametrize("dispatch", ["flush", "immediate", "queue"])
def test_late_clients_are_sampled_by_the_odds_too(dispatch: Any) -> None:
    schedule = tunefree.Schedule("buffered", concurrency=3, dispatch=dispatch)
    choices: dict[str, Any] = {"algorithm": "fedavg", "local_steps": 1, "rounds": 60}
    weights = [1, 1, 1, 1, 1, 30]
    uploads = fit(schedule=schedule, per_round=2, sampling=weights, **choices).record.uploads()
    usual = fit(schedule=schedule, per_round=2, **choices).record.uploads()
    assert uploads[5] > 1.3 * usual[5]  # it is often busy, and then cannot be drawn


def test_uniform_sampling_is_what_it_was() -> None:
    sys = System(N=6, S=3, K=1, T=9)
    for t in range(9):
        chosen = stream(7, "cohort", t).choice(6, 3, replace=False)
        assert cohort(7, t, sys) == sorted(chosen.tolist())
    assert fit().theta_sha256 == fit(sampling="uniform").theta_sha256


def test_a_cohort_is_drawn_with_the_odds() -> None:
    odds, sys = [0.5, 0.3, 0.15, 0.05], System(N=4, S=1, K=1, T=1)
    drawn = [cohort(0, t, sys, odds)[0] for t in range(4000)]
    for client, p in enumerate(odds):
        assert abs(drawn.count(client) / 4000 - p) < 0.03
    for t in range(50):
        assert len(set(cohort(0, t, sys._replace(S=3), odds))) == 3
    assert cohort(0, 0, sys._replace(S=4), odds) == [0, 1, 2, 3]


@pytest.mark.parametrize("sampling", ["weights", "by-n"])
def test_weights_and_examples_are_the_same_odds(sampling: str) -> None:
    weights = [2.0 * n for n in SIZES] if sampling == "weights" else torch.tensor(SIZES)
    one, other = fit(sampling=weights), fit(sampling="examples")
    assert one.theta_sha256 == other.theta_sha256 != fit().theta_sha256


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sampling": [1, 2]}, "sampling has 2 weights for 6 clients; give one for each"),
        ({"sampling": [1, 2, 3, 4, 5, 0]}, "or a positive finite weight for each client"),
        ({"sampling": "exmples"}, "did you mean 'examples'?"),
        ({"weighting": "examples"}, "PolarFL cannot weight clients: its c is the mean of all"),
        ({"weighting": "exmples"}, "weighting = 'exmples' is not known"),
        (
            {"algorithm": "feddyn", "weighting": "examples"},
            "FedDyn cannot weight clients: its serv",
        ),
        ({"algorithm": "fedavg", "weigthing": "examples"}, "did you mean 'weighting'?"),
        (
            {"roundz": 3, "algorithm": "fedavg"},
            "train has no argument 'roundz'; did you mean 'rounds'?",
        ),
        ({"local_epochs": -1}, "local_epochs = -1 is too small"),
    ],
)
def test_bad_input_gets_a_clear_error(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        fit(**given)
    assert sentence in str(error.value)


def test_compare_weights_every_method_or_says_which_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "fedavg", "polarfl", "--weighting", "examples"]) == 2
    assert "PolarFL cannot weight clients" in capsys.readouterr().err


def test_a_report_keeps_the_seeds_of_a_method_together(tmp_path: Path) -> None:
    """Each seed splits the data differently, so K differs."""
    from tunefree.record import summarise
    from tunefree.report.grouping import group

    for seed in (0, 1, 2):
        path = str(tmp_path / f"{seed}.sqlite")
        own = {"out": path, "seed": seed, "partition": "quantity:0.5"}
        own |= {"batch_size": 40, "local_epochs": 7, "rounds": 1}
        for _ in prepare(load(None, KEYS | own)):
            pass
    runs = [summarise(tmp_path / f"{seed}.sqlite") for seed in (0, 1, 2)]
    assert len({run.facts.system["K"] for run in runs}) > 1
    assert [method.label for method in group(runs)] == ["PolarFL"]


def test_the_identity_of_a_run_has_its_epochs_and_odds(tmp_path: Path) -> None:
    """Two that differ in nothing else are distinguished; older ones stored neither."""
    data = clients((8, 8, 8, 8, 8, 8))  # one step is one epoch

    def identity(name: str, **settings: Any) -> dict[str, str]:
        fit(data, rounds=1, out=tmp_path / name, **settings)
        return dict(Record.open(tmp_path / name).facts().identity)

    plain, epochs = identity("a", local_steps=1), identity("b", local_epochs=1)
    assert epochs == plain | {"algorithm": f"{plain['algorithm']} for 1 epochs"}
    assert "epochs" not in str(plain)
    drawn = [identity("c", local_steps=1, sampling="examples")]
    drawn += [identity(f"d{w}", local_steps=1, sampling=[1, 1, 1, 1, 1, w]) for w in (1, 2)]
    assert drawn[0] == plain | {"schedule": f"{plain['schedule']}, sampling by examples"}
    assert len({each["schedule"] for each in (plain, *drawn)}) == 4
