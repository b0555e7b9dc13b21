"""A `Run` object: iterated, left, inspected, continued; stopped by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tests.test_train import blobs
from tunefree import ConfigError, Run
from tunefree.methods import FedAvg, Scaffold
from tunefree.record import Record, is_locked

TEST = blobs(1, 60, seed=9)[0]
SMALL: dict[str, Any] = {
    **{"rounds": 9, "per_round": 3, "local_steps": 2, "batch_size": 8, "progress": False},
}
WAYS: dict[str, dict[str, Any]] = {
    "polarfl": {},
    "scaffold": {"algorithm": Scaffold(eta=0.1)},
    "buffered": {
        "algorithm": "fedbuff",
        "schedule": tunefree.Schedule("buffered", concurrency=5, dispatch="queue"),
    },
    "seldom": {"commit_every": 4},
}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def new_run(**more: Any) -> Run:
    return Run(model(), blobs(), TEST, **(SMALL | more))


def timeless(run: Run) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history]


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("way", WAYS)
def test_leaving_and_coming_back_changes_nothing(way: str, where: str, tmp_path: Path) -> None:
    whole = new_run(**WAYS[way]).finish()
    out = tmp_path / "a.sqlite" if where == "file" else None
    run = new_run(**WAYS[way], out=out)
    for rows in (1, 4, 2):
        for seen, row in enumerate(run, 1):
            assert row == run.history[-1]
            assert run.step is not None
            assert row["round"] == row["t"] + 1 == run.step.t + 1
            if seen == rows:
                break
        assert run.record.state == "interrupted"
        assert not is_locked(out)
    assert len(run.history) == 7
    run.finish()
    assert run.theta_sha256 == whole.theta_sha256
    assert timeless(run) == timeless(whole)
    assert run.record.state == "done"
    assert list(run) == []


def test_a_pool_is_restarted_with_the_same_clients() -> None:
    """Scaffold's clients have states; a new pool must know them."""
    run = new_run(algorithm="scaffold", fleet="pool", workers=1)
    for row in run:
        if row["round"] == 5:
            break
    assert run.finish().theta_sha256 == new_run(algorithm="scaffold").finish().theta_sha256


def test_early_stopping_leaves_the_model_of_that_round() -> None:
    run = new_run(eval_every=1, rounds=60)
    for row in run:
        if row.get("accuracy", 0) > 0.8:
            break
    assert 0 < row["round"] < 60
    x, y = TEST
    assert (run.model(x).argmax(1) == y).float().mean().item() == pytest.approx(row["accuracy"])


def test_an_error_in_the_loop_leaves_the_run_whole(tmp_path: Path) -> None:
    run = new_run(out=tmp_path / "a.sqlite")

    def careless() -> None:
        for row in run:
            assert row["round"] < 3, "enough"

    with pytest.raises(AssertionError, match="enough"):
        careless()
    assert (run.record.state, run.history[-1]["round"]) == ("interrupted", 3)
    assert run.finish().theta_sha256 == new_run().finish().theta_sha256


def test_a_new_loop_ends_one_that_is_still_open() -> None:
    run = new_run()
    first = iter(run)
    rows = [next(first), next(first)]
    rows += list(run)
    assert [row["round"] for row in rows] == list(range(10))
    assert list(first) == []
    assert run.theta_sha256 == new_run().finish().theta_sha256


def test_changing_a_row_has_no_effect() -> None:
    run, seen = new_run(commit_every=4), []
    for row in run:
        seen.append(row["samples"])
        row.clear()
    assert timeless(run) == timeless(new_run().finish())
    assert seen == [row["samples"] for row in run.history]


def test_a_run_that_was_only_made_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    run = new_run(out=path)
    assert "not started" in repr(run)
    assert not is_locked(path)
    again = tunefree.resume(path, model(), blobs(), TEST, progress=False)  # in the same process
    assert again.theta_sha256 == new_run().finish().theta_sha256
    assert list(run) == []  # another has finished it
    assert run.theta_sha256 == again.theta_sha256


def test_a_resumed_run_can_be_iterated_too(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    for row in new_run(out=path, evaluate=lambda _: {"one": 1}):
        if row["round"] == 4:
            break
    run = Run.resume(path, model(), blobs(), TEST, evaluate=lambda _: {"two": 2})
    assert [row["round"] for row in islice(run, 3)] == [5, 6, 7]
    assert run.finish().theta_sha256 == new_run().finish().theta_sha256
    assert (run.history[0]["one"], run.history[-1]["two"]) == (1, 2)
    with pytest.warns(UserWarning, match="has the measures one, two of a function"):
        more = tunefree.resume(path, model(), blobs(), TEST, rounds=12, progress=False)
    assert more.theta_sha256 == new_run(rounds=12).finish().theta_sha256


class Interrupts:
    """A measure that sends Ctrl-C so many times in one evaluation."""

    def __init__(self, at: int, times: int) -> None:
        self._left, self._times = at + 1, times  # the first call is before the training

    def __call__(self, _: nn.Module) -> dict[str, float]:
        self._left -= 1
        for _again in range(self._times if self._left == 0 else 0):
            signal.raise_signal(signal.SIGINT)
        return {}


@pytest.mark.parametrize("where", ["memory", "file"])
def test_ctrl_c_ends_training_after_its_round(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.sqlite" if where == "file" else None
    run = tunefree.train(
        *(model(), blobs(), TEST),
        **(SMALL | {"eval_every": 1, "evaluate": Interrupts(4, 1), "out": out}),
    )
    err = capsys.readouterr().err
    assert "stopping after this round; once more to stop at once" in err
    assert err.splitlines()[-1].startswith("interrupted after round 3; continue with run.finish()")
    assert (f"or tunefree.resume({str(out)!r}, model, clients, test)" in err) == (out is not None)
    assert "interrupted after round 3" in repr(run)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert run.finish().theta_sha256 == new_run().finish().theta_sha256
    assert "interrupted" not in capsys.readouterr().err


def test_ctrl_c_twice_ends_it_at_once_and_keeps_whole_rounds(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with pytest.raises(KeyboardInterrupt):
        new_run(eval_every=1, evaluate=Interrupts(4, 2), out=path).finish()
    record = Record.open(path)
    assert (record.state, record.last()) == ("interrupted", (1, 0))
    again = tunefree.resume(path, model(), blobs(), TEST, progress=False)
    assert again.theta_sha256 == new_run().finish().theta_sha256


def test_other_signal_handlers_are_restored() -> None:
    received = []
    before = signal.signal(signal.SIGINT, lambda *_: received.append(1))
    try:
        run = new_run(eval_every=1, evaluate=Interrupts(4, 1)).finish()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (received, run.record.state) == ([1], "done")


def test_a_thread_trains_too() -> None:
    ended = []
    thread = threading.Thread(target=lambda: ended.append(new_run().finish()))
    thread.start()
    thread.join()
    assert ended[0].record.state == "done"


SCRIPT = """
import os, signal, torch, tunefree
def stop(model):
    calls.append(1)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return {}
calls = []
clients = [(torch.ones(4, 2), torch.arange(4) % 2) for _ in range(3)]
run = tunefree.train(torch.nn.Linear(2, 2), clients, rounds=50, eval_every=1, evaluate=stop)
print(run)
"""


def test_a_script_continues_after_ctrl_c() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "interrupted after round 3" in done.stdout
    assert "continue with run.finish()" in done.stderr


def test_a_run_describes_itself(tmp_path: Path) -> None:
    run = new_run(algorithm="padamfed", rounds=40, name="my first", out=tmp_path / "a.sqlite")
    for row in run:
        if row["round"] == 20:
            break
    line = repr(run)
    assert "\n" not in line
    for words in ("PAdaMFed 'my first'", "N = 6, S = 3, K = 2, T = 40", "round 20", "a.sqlite"):
        assert words in line
    assert f"accuracy {row['accuracy']:.4f}" in line
    told = run.summary()
    assert "eta   = 0.07906   = 1 / (K sqrt(T))" in told
    assert "interrupted after round 20: accuracy" in told
    assert run.record.facts().label == "my first"
    assert run.record.summary().as_dict()["name"] == "my first"
    assert "given" in new_run(algorithm=FedAvg(eta=0.3)).summary()


def test_loading(tmp_path: Path) -> None:
    path, given = tmp_path / "a.sqlite", model()
    run = new_run(out=path, kernels="plain")
    with pytest.raises(ConfigError, match="contains no model yet"):
        tunefree.load(path, given)
    run.finish()
    before = given.weight.clone()  # type: ignore[operator]
    loaded = tunefree.load(path, given)
    assert not loaded.training
    x, _ = TEST
    assert torch.equal(loaded(x), run.model(x))
    assert torch.equal(given.weight, before)  # type: ignore[arg-type]
    loaded.weight.data.zero_()  # type: ignore[operator]
    assert torch.equal(tunefree.load(path, given)(x), run.model(x))
    with pytest.raises(ConfigError, match=r"has 10 trainable parameters .* and the run 15"):
        tunefree.load(path, nn.Linear(4, 2))
    with pytest.raises(ConfigError, match=r"shapes \[\[5, 2\], \[5\]\].* \[\[3, 4\], \[3\]\]"):
        tunefree.load(path, nn.Linear(2, 5))  # as many parameters, in other places
    with pytest.raises(ConfigError, match="does not contain the module; give the one"):
        tunefree.load(path)


def test_loading_and_clients_of_a_run_of_the_command_line(tmp_path: Path) -> None:
    from tunefree.cli import main
    from tunefree.run.files import client_scores

    path = tmp_path / "a.sqlite"
    flags = ["--clients=6", "--per-round=2", "--local-steps=1", "--rounds=3", "--model=logistic"]
    assert main(["run", *flags, f"--out={path}", "--format=json"]) == 0
    loaded = tunefree.load(path)
    theta = torch.nn.utils.parameters_to_vector(loaded.parameters()).detach().numpy()
    assert (theta == Record.open(path).vectors()["theta"]).all()
    rows = client_scores(path)
    assert [row["client"] for row in rows] == list(range(6))
    assert rows == Run.resume(path).client_scores()
    assert Record.open(path).state == "done"


def test_each_clients_own_scores(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    run = new_run(out=path).finish()
    rows = run.client_scores()
    trained = run.model
    for (x, y), row in zip(blobs(), rows, strict=True):
        assert row["n"] == len(y)
        assert row["loss"] == pytest.approx(nn.functional.cross_entropy(trained(x), y).item())
        assert row["accuracy"] == pytest.approx((trained(x).argmax(1) == y).float().mean().item())
    told = tunefree.spread(rows)
    accuracies = [row["accuracy"] for row in rows]
    assert told["worst"] == min(accuracies) == accuracies[int(told["worst_client"])]
    assert tunefree.spread(rows, "loss")["worst"] == max(row["loss"] for row in rows)
    from tunefree.run.files import client_scores

    with pytest.raises(ConfigError, match=r"Run.resume\(path, model, clients\).client_scores"):
        client_scores(path)


def test_measures_of_the_users_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, _ = TEST

    def measure(module: nn.Module) -> dict[str, Any]:
        assert not module.training
        found = {"length": module(x).norm(), "seen": 3, "undefined": float("nan")}
        for parameter in module.parameters():
            parameter.zero_()  # careless
        return found

    run = new_run(evaluate=measure, eval_every=3, out=tmp_path / "a.sqlite", progress=True).finish()
    assert run.theta_sha256 == new_run().finish().theta_sha256
    assert [row["round"] for row in run.history if "length" in row] == [0, 3, 6, 9]
    assert run.history[-1]["length"] == pytest.approx(run.model(x).norm().item())
    assert run.history[-1]["seen"] == 3.0
    assert "undefined" not in run.history[-1]
    assert "seen 3.0000" in capsys.readouterr().err
    summary = run.record.summary()
    assert summary.measures[-2:] == ["length", "seen"]
    assert summary.as_dict()["seen"] == 3.0


@pytest.mark.parametrize(
    ("measured", "sentence"),
    [
        (0.5, r"evaluate returned 0.5; it must return a dict of numbers"),
        ({"accuracy": 1.0}, "a measure called 'accuracy'; choose a name other than"),
        ({"bits_up": 1.0}, "a measure called 'bits_up'"),
        ({3: 1.0}, "a measure called 3"),
        ({"f1": "high"}, "evaluate returned f1 = 'high'; it must be a number"),
        ({"f1": torch.ones(2)}, "evaluate returned f1 = tensor"),
    ],
)
def test_a_bad_measure_is_refused_before_training(
    measured: Any, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        new_run(evaluate=lambda _: measured, out=tmp_path / "a.sqlite")
    assert not (tmp_path / "a.sqlite").exists()


def test_measures_that_end_with_a_resume_are_reported(tmp_path: Path) -> None:
    path, given = tmp_path / "a.sqlite", {"seen": 3.0}
    new_run(evaluate=lambda _: given, out=path).finish()
    with pytest.warns(UserWarning, match=r"has the measures seen of a function .* evaluate=\.\.\."):
        Run.resume(path, model(), blobs(), TEST, rounds=11)
    run = Run.resume(path, model(), blobs(), TEST, rounds=12, evaluate=lambda _: given)
    assert run.finish().history[-1]["seen"] == 3.0


def test_a_measure_that_fails_is_named() -> None:
    def recall(module: nn.Module) -> dict[str, float]:
        raise RuntimeError("no such class")

    with pytest.raises(RuntimeError, match="no such") as error:
        new_run(evaluate=recall)
    assert error.value.__notes__ == ["raised by your function evaluate = recall"]


def test_a_garbage_collected_run_keeps_what_it_did(tmp_path: Path) -> None:
    """In its own process, as it once waited forever for a thread that was collected with it."""
    out = tmp_path / "left.sqlite"
    code = f"""
import gc, torch, tunefree
clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
def left():
    rows = iter(tunefree.Run(torch.nn.Linear(4, 3), clients, rounds=50, out={str(out)!r}))
    cycle = [rows, [next(rows) for _ in range(5)]]
    cycle.append(cycle)
left()
gc.collect()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    record = Record.open(out)
    assert (record.state, len(record.history())) == ("interrupted", 5)
