"""`tunefree-evidence challenge` at its smallest size."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.one_process import in_one_process
from tunefree.data import describe
from tunefree.errors import ConfigError
from tunefree.importing import EVIDENCE
from tunefree.record import Record
from tunefree.search.batch import Result
from tunefree_evidence.challenge import runner, tasks
from tunefree_evidence.challenge.methods import ENTRIES, TUNING_SEED, entries, own_entry, why_not
from tunefree_evidence.challenge.runner import Order, configure
from tunefree_evidence.challenge.tasks import SCALES, TASKS, Task, choose
from tunefree_evidence.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tunefree(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)
    in_one_process(monkeypatch)

    def run(*words: str) -> tuple[int, str, str]:
        where = ("--workers", "1", "--out", str(tmp_path / "out"))
        code = main(["challenge", *words, "--scale", "smoke", *where])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_suite_is_as_large_as_it_says() -> None:
    assert len(TASKS) >= 12
    assert sum(task.held_out for task in TASKS) >= 4
    assert {task.kind for task in TASKS if task.held_out} == {"synchronous", "late", "compressed"}
    assert len({task.name for task in TASKS}) == len(TASKS)


def test_no_held_out_task_shares_data_and_network_with_a_development_task() -> None:
    def pair(task: Task) -> tuple[object, object]:
        return task.settings["data"], task.settings["model"]

    seen = {pair(task) for task in TASKS if not task.held_out}
    assert not seen & {pair(task) for task in TASKS if task.held_out}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("scale", SCALES)
def test_every_method_can_run_every_task_of_its_kind(task: Task, scale: tasks.Scale) -> None:
    base = configure(task, scale)
    assert describe(base.data) is not None
    assert base.model in ("mlp", *EVIDENCE["model"].split())
    for entry in ENTRIES[task.kind]:
        assert why_not(entry, base) == ""


def test_a_tuned_method_is_searched_with_and_without_decay() -> None:
    for each in ENTRIES.values():
        assert all(entry.grid["decay"] == ("none", "linear") for entry in each if entry.grid)
        free = {entry.method.partition(":")[0] for entry in each if not entry.grid}
        assert "polarfl" in free


def test_it_tunes_runs_and_runs_nothing_twice(tunefree: Run, tmp_path: Path) -> None:
    words = ("cancer-mlp", "--only", "polarfl", "fedavg", "--seeds", "0", "1")
    code, out, _ = tunefree(*words, "--format", "json")
    assert code == 0
    (task,) = json.loads(out)["tasks"]
    ours, fedavg = task["methods"]
    assert (ours["method"], ours["tuned"], ours["bill"]["trials"]) == ("polarfl", False, 0)
    assert (fedavg["tuned"], fedavg["bill"]["trials"]) == (True, 3)
    assert fedavg["bill"]["rounds"] == 3 * 1 + 1 * 2 + 1 * 8
    assert set(fedavg["chosen"]) == {"eta", "decay", "average"}
    assert [row[0] for row in ours["curves"][0]][-1] == 8
    trials = list((tmp_path / "out/smoke/cancer-mlp/trials").glob("*.sqlite"))
    assert {scored_on(path) for path in trials} == {"validation"}
    assert {scored_on(path) for path in (tmp_path / "out/smoke/cancer-mlp").glob("*.sqlite")} == {
        "test"
    }
    assert all(f"seed{TUNING_SEED}" in path.name for path in trials)
    runs = sorted((tmp_path / "out").rglob("*.sqlite"))
    before = [path.stat().st_mtime_ns for path in runs]
    again = tunefree(*words, "--format", "json")
    assert json.loads(again[1]) == json.loads(out)
    assert [path.stat().st_mtime_ns for path in runs] == before


def test_a_method_that_runs_alone_joins_those_that_ran_before(tunefree: Run) -> None:
    def methods(*words: str) -> dict[str, Any]:
        _, out, _ = tunefree("cancer-mlp", *words, "--format", "json")
        (task,) = json.loads(out)["tasks"]
        return {each["method"]: each["accuracy"] for each in task["methods"]}

    first = methods("--only", "polarfl", "fedavg", "--seeds", "0")
    later = methods("--only", "parfrefl", "--seeds", "0")
    assert list(later) == ["polarfl", "fedavg", "parfrefl"]
    assert first.items() <= later.items()
    assert list(methods("--only", "parfrefl", "--seeds", "1")) == ["parfrefl"]


def test_scores_of_another_number_of_trials_do_not_mix(tunefree: Run) -> None:
    both = ("digits-short", "cancer-mlp", "--seeds", "0", "--format", "json")
    tunefree(*both, "--only", "parfrefl")
    _, out, _ = tunefree(*both, "--only", "polarfl", "--trials", "4")
    for task in json.loads(out)["tasks"]:
        assert [each["method"] for each in task["methods"]] == ["polarfl"]


def test_a_task_that_fails_does_not_lose_its_earlier_results(
    tunefree: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("cancer-mlp", "--only", "polarfl", "--format", "json")
    _, before, _ = tunefree(*words)
    monkeypatch.setattr(runner, "classes_of", lambda _base: None)
    code, after, err = tunefree(*words)
    assert code == 1
    assert "cancer-mlp was not run" in err
    assert json.loads(after) == json.loads(before)


def scored_on(path: Path) -> str:
    with closing(Record.open(path)) as record:
        return "validation" if record.facts().validation else "test"


def test_every_method_starts_from_the_trained_model(tunefree: Run) -> None:
    code, out, _ = tunefree("cifar-lora", "--only", "polarfl", "parfrefl", "--format", "json")
    (task,) = json.loads(out)["tasks"]
    first = {curve[0][1] for method in task["methods"] for curve in method["curves"]}
    assert code == 0
    assert len(first) == 1
    assert task["start"] == first.pop() > 0.15
    assert "LoRA of rank 4" in task["words"]


OWN = """
from tunefree.methods.fedavg import FedAvg as Mine
"""


def test_a_users_own_method_and_task(
    tunefree: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "challenger.py").write_text(OWN)
    (tmp_path / "hospital.toml").write_text(
        'data = "breast-cancer"\npartition = "iid"\nclients = 5\nper_round = 2\n'
        "local_steps = 2\nrounds = 6\neval_every = 3\n"
    )
    words = ("hospital.toml", "--only", "polarfl", "--add", "challenger:Mine", "--trials", "2")
    code, out, _ = tunefree(*words, "--format", "json")
    (task,) = json.loads(out)["tasks"]
    assert code == 0
    assert (task["task"], task["rounds"]) == ("hospital", 6)
    assert [method["method"] for method in task["methods"]] == ["polarfl", "challenger:Mine"]
    assert task["methods"][1]["bill"]["trials"] == 2


def test_a_users_table_with_a_client_column_has_natural_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 7},{i % 2},{'abc'[i % 3]}" for i in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["age,ill,hospital", *rows]) + "\n")
    (tmp_path / "own.toml").write_text(
        'data = "table.csv"\n[data_option]\ntarget = "ill"\nclient_column = "hospital"\n'
    )
    (task,) = choose(["own.toml"])
    settings = runner.configure(task, "small")
    assert (settings.partition, settings.clients, settings.per_round) == ("natural", 3, 3)


def test_a_method_that_cannot_run_a_task_is_skipped_with_its_reason(tunefree: Run) -> None:
    code, _, err = tunefree("fashion-late", "--only", "polarfl", "--add", "mime:eta=0.1")
    assert code == 0
    assert "mime:eta=0.1 is skipped: Mime needs 2 exchanges a round" in err


def test_options_that_are_given_are_not_searched() -> None:
    assert own_entry("fedavg:eta=0.1").grid == {}
    assert set(own_entry("scaffold:eta=0.1").grid) == {"s"}
    assert [entry.method for entry in entries("late", ["fedavg:eta=1"], ["polarfl"])] == [
        "polarfl",
        "fedavg:eta=1",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fashion-skwe"], "did you mean 'fashion-skew'?"),
        (["list", "page"], "`tunefree-evidence challenge list` takes no tasks"),
        (["digits-short", "--seeds", "100"], "--seeds 100 is the seed that methods are tuned with"),
        (["digits-short", "--seeds", "1", "1"], "has the same seed twice"),
        (["digits-short", "--trials", "-1"], "must be at least 0"),
        (["digits-short", "--add", "fedavgg"], "did you mean 'fedavg'?"),
        (["digits-short", "--only", "fedprox"], "--only = 'fedprox' is not known"),
        (["nothing.toml"], "'nothing.toml' cannot be read"),
        (["page"], "has no results of `small` or `full` size"),
    ],
)
def test_bad_input_gets_one_sentence(tunefree: Run, words: list[str], sentence: str) -> None:
    code, out, err = tunefree(*words)
    assert (code, out) == (2, "")
    assert sentence in err


def test_the_list_shows_all_tasks(tunefree: Run) -> None:
    code, out, _ = tunefree("list", "--format", "json")
    rows: list[dict[str, Any]] = json.loads(out)
    assert code == 0
    assert [row["task"] for row in rows] == [task.name for task in TASKS]
    assert all(len(row["methods"]) >= 5 for row in rows)


def test_a_users_task_may_not_take_a_name_of_the_suite(tmp_path: Path) -> None:
    path = tmp_path / "digits-short.toml"
    path.write_text("rounds = 3\n")
    with pytest.raises(ConfigError, match="has the name of a task of the suite"):
        choose([str(path)])


def test_a_diverged_run_has_accuracy_0() -> None:
    history = [{"round": 1.0, "accuracy": 0.9, "train_loss": 0.1}]
    run: Any = None
    assert runner.final_accuracy(Result(run, "done", history)) == 0.9
    assert runner.final_accuracy(Result(run, "diverged", history)) == 0.0
    assert Order([], "small", Path()).budget == 27
