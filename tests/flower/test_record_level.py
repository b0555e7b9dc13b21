"""Private records on nodes: the ledger on a node's own disk, and what it does not allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("flwr")
pytest.importorskip("dp_accounting")

from tests.flower.nodes import Nodes, build_model, config, load_test
from tunefree.errors import ConfigError, FleetError
from tunefree.flower.federation import Federation
from tunefree.flower.record_ledger import RecordLedger, limit_of
from tunefree.privacy.accountant import Gaussian

RECORDS: dict[str, Any] = {
    **{"epsilon": 8.0, "unit": "record", "records": 24.0, "algorithm": "polarfl_stateless"},
    **{"rounds": 4, "eval_every": 1, "deadline": 60.0},
}
ONE, TWO = Counter({Gaussian(2.0, 0.1): 5}), Counter({Gaussian(2.0, 0.1): 10})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(f"tunefree.flower.pace.{name}", 0.001)
    monkeypatch.setattr("tunefree.flower.transport.FRESH", 0.0)
    monkeypatch.setattr("tunefree.flower.nodes.AGAIN", 0.01)


def federated(nodes: Nodes) -> Any:
    return Federation(cast("Any", nodes), nodes.run_config, build_model, load_test(None)).run()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[RecordLedger]:
    with closing(RecordLedger(tmp_path, limit=2.0)) as found:
        yield found


def test_a_job_is_paid_for_before_it_is_done(ledger: RecordLedger, tmp_path: Path) -> None:
    ledger.enter("run", "a", ONE, TWO)
    ledger.enter("run", "a", ONE, TWO)  # killed before it had a reply: paid for again
    assert ledger.releases("run") == TWO
    with pytest.raises(ConfigError, match="as often as was accounted for; raise participations"):
        ledger.enter("run", "b", ONE, TWO)
    with closing(RecordLedger(tmp_path, limit=2.0)) as again:
        assert again.releases("run") == TWO  # the refused one is not in it
        assert 0 < again.spent() < 2


def test_the_limit_is_over_all_runs(ledger: RecordLedger) -> None:
    for run in range(3):
        ledger.enter(f"run {run}", "a", TWO, TWO)
    assert 1 < (spent := ledger.spent()) <= 2
    many = Counter({Gaussian(2.0, 0.1): 100})
    with pytest.raises(
        ConfigError, match=r"epsilon = \d.\d+, and its node allows 2; go on without"
    ):
        ledger.enter("run 9", "a", many, many)
    assert ledger.spent() == spent


def test_only_the_last_reply_of_a_run_is_kept(ledger: RecordLedger) -> None:
    ledger.keep("run", "a", b"1")
    ledger.keep("run", "b", b"2")
    ledger.keep("other", "a", b"3")
    found = [ledger.reply(*key) for key in (("run", "a"), ("run", "b"), ("other", "a"))]
    assert found == [None, b"2", b"3"]


def test_the_limit_is_the_nodes_own() -> None:
    assert limit_of({}) == float("inf")
    with pytest.raises(ConfigError, match="limit = 'much' must be a number"):
        limit_of({"limit": "much"})


def test_a_federation_spends_what_it_says(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **RECORDS))
    nodes.node_config = {"limit": 9.0}
    run = federated(nodes)
    rows = list(run)
    facts = run.record.facts()
    assert facts.privacy["trust"] == "the server sees noisy updates; holds against everybody"
    assert 7.9 < rows[-1]["epsilon"] <= 8
    for node in nodes.places:
        with closing(RecordLedger(nodes.store(node), 9.0)) as kept:
            assert kept.spent() == pytest.approx(rows[-1]["epsilon"], rel=0.01)
    answers = [message.content["tunefree"] for message in nodes.received]
    told = [dict(words) for words in answers if "n" in words]
    assert {words["n"] for words in told} == {1}
    assert len({words["drawn"] for words in told}) == 1


def test_two_federations_of_one_seed_have_different_noise(tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        (folder := tmp_path / name).mkdir()
        run = federated(Nodes(folder, range(3), config(folder, **RECORDS)))
        list(run)
        hashes.add(run.theta_sha256)
    assert len(hashes) == 2


def test_a_node_with_a_limit_stops_at_it(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **RECORDS))
    nodes.node_config = {"limit": 6.0}
    run = federated(nodes)
    with pytest.raises(FleetError, match="its node allows 6"):
        list(run)
    for node in nodes.places:
        with closing(RecordLedger(nodes.store(node), 6.0)) as kept:
            assert 0 < kept.spent() <= 6


@pytest.mark.parametrize("more", [{}, {"evaluate_on_clients": True}, {"sampling": "examples"}])
def test_a_node_with_a_limit_does_nothing_else(tmp_path: Path, more: dict[str, Any]) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **more))
    nodes.node_config = {"limit": 6.0}
    with pytest.raises(FleetError):
        list(federated(nodes))
    answers = [dict(m.content["tunefree"]) for m in nodes.received if m.has_content()]
    assert not any("samples" in words or "n" in words for words in answers)


def test_a_resumed_run_does_not_pay_twice(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **RECORDS))
    nodes.node_config = {"limit": 9.0}
    lost = [1002]
    for _ in islice(federated(nodes), 3):
        pass
    nodes.change = lambda node, reply: None if lost and node == lost.pop() else reply
    rows = list(federated(nodes))
    assert rows[-1]["t"] == 3
    for node in nodes.places:
        with closing(RecordLedger(nodes.store(node), 9.0)) as kept:
            assert kept.spent() <= 8.01


def test_a_job_that_is_repeated_gives_the_same_reply(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **RECORDS))
    list(federated(nodes))
    job = next(m for m in reversed(nodes.sent) if m.metadata.dst_node_id == 1001)
    with closing(RecordLedger(nodes.store(1001), 9.0)) as kept:
        before = kept.releases()
        first, again = (nodes.answer(1001, job).content for _ in range(2))
        assert dict(first["tunefree"])["bytes"] == dict(again["tunefree"])["bytes"]
        assert kept.releases() == before


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"records": 0.0}, "records = 0.0 is needed with unit = record: about how many"),
        ({"rounds": 5}, "noise on each gradient was"),
        ({"evaluate_on_clients": True}, "cannot be promised: scores that are computed on"),
        ({"algorithm": "fedsps"}, "cannot be promised: clients of FedSPS use the loss"),
    ],
)
def test_what_cannot_be_promised_is_refused(
    tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **RECORDS))
    if "rounds" in more:
        list(federated(nodes))
    nodes.run_config = {**nodes.run_config, **more}
    with pytest.raises(ConfigError, match=says):
        federated(nodes)
