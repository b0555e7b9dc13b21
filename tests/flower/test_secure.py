"""Secure sums in a federation: ServerApp and ClientApps on a Grid of nodes in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from torch import nn

import tunefree
from tests.flower.nodes import Nodes, build_model, config, load_data, load_test, samples
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.job import Done, Job
from tunefree.flower.clientapp import client_app
from tunefree.flower.federation import Federation
from tunefree.flower.secure import SecureFleet
from tunefree.flower.trips import SECURE
from tunefree.run.engine import Training
from tunefree.secure.messages import AGREE, OPEN, PREKEYS, SHARES, UPLOAD, Invite
from tunefree.secure.messages import decode as read
from tunefree.secure.messages import encode as written
from tunefree.secure.roster import Roster, new_identity, read_identity

METHODS = ("polarfl", "polarfl_stateless", "padamfed", "parfrefl", "mime", "fedavgm")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(f"tunefree.flower.pace.{name}", 0.001)
    monkeypatch.setattr("tunefree.flower.transport.FRESH", 0.0)
    monkeypatch.setattr("tunefree.flower.nodes.AGAIN", 0.01)
    node = pytest.importorskip("tunefree.secure.node")
    monkeypatch.setattr(node, "SCHEMA", node.SCHEMA.replace("= EXTRA", "= OFF"))


def secured(folder: Path, places: Iterable[int], **settings: Any) -> Nodes:
    """Nodes with a roster and a key each, of a run with secure sums."""
    places = list(places)
    folder.mkdir(exist_ok=True)
    keys = {place: new_identity(folder / f"key{place}").public for place in places}
    (folder / "roster").write_text(Roster("tests", keys).text())
    given = {"secure": True, "roster": str(folder / "roster"), "clients": len(places)}
    nodes = Nodes(folder, places, config(folder, **given | settings))
    nodes.node_config = {"roster": str(folder / "roster"), "roster-key": str(folder / "key{}")}
    return nodes


def federated(nodes: Nodes) -> Training:
    return Federation(cast("Any", nodes), nodes.run_config, build_model, load_test(None)).run()


def trained(nodes: Nodes) -> Training:
    run = federated(nodes)
    list(run)
    return run


def simulated(
    n: int, name: str, rounds: int = 8, make: Callable[[], nn.Module] = build_model, **more: Any
) -> tunefree.Run:
    torch.manual_seed(int(tunefree.core.stream(0, "model").integers(2**31)))
    return tunefree.train(
        make(),
        [samples(place) for place in range(n)],
        None if more else samples(99),
        algorithm=name,
        rounds=rounds,
        local_steps=1,
        batch_size=8,
        eval_every=4,
        secure=True,
        progress=False,
        **more,
    )


@pytest.mark.parametrize("name", METHODS)
def test_the_same_bits_and_traffic_as_the_simulator(name: str, tmp_path: Path) -> None:
    run = trained(secured(tmp_path, range(4), algorithm=name))
    expected = simulated(4, name)
    assert run.theta_sha256 == expected.theta_sha256
    for kind in ("bits_up", "bits_down", "accuracy"):
        assert run.record.history()[-1][kind] == expected.history[-1][kind]


def with_batch_norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


@pytest.mark.parametrize("kept", [{"batch_norm": "local"}, {"batch_norm": "local", "local": "2"}])
def test_parts_that_stay_with_clients_are_in_no_sum(kept: dict[str, Any], tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(4), algorithm="polarfl", **kept)
    nodes.app = client_app(with_batch_norm, load_data)
    run = Federation(cast("Any", nodes), nodes.run_config, with_batch_norm).run()
    list(run)
    expected = simulated(4, "polarfl", make=with_batch_norm, **kept)
    assert run.theta_sha256 == expected.theta_sha256
    assert run.objective.d == sum(p.numel() for p in with_batch_norm()[0].parameters()) + 18 * (
        "local" not in kept
    )


def step_of(message: Message) -> int:
    """The step of a secure sum that a message asks for; 0 if none."""
    record = message.content.get(SECURE)
    return cast("int", record["step"]) if record is not None else 0


def deaf(nodes: Nodes, place: int, steps: Collection[int], rounds: int = 10**6) -> None:
    """This node's answers to these steps are lost, in its first rounds."""
    lost: list[int] = []

    def change(node: int, reply: Message) -> Message | None:
        message = next(m for m in reversed(nodes.sent) if m.metadata.dst_node_id == node)
        if nodes.places[node] != place or step_of(message) not in steps or len(lost) >= rounds:
            return reply
        lost.append(node)
        return None

    nodes.change = change


def absences(run: Training) -> dict[int, str]:
    return {client: why for _, client, why in run.step.absent} if run.step else {}


@pytest.mark.parametrize("step", [SHARES, UPLOAD, AGREE, OPEN])
def test_a_client_drops_out_at_every_stage(step: int, tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(4), algorithm="polarfl", rounds=1, deadline=0.2)
    deaf(nodes, 2, {step})
    run = trained(nodes)
    assert run.step is not None
    lost = step in (SHARES, UPLOAD)
    assert list(run.step.clients) == ([0, 1, 3] if lost else [0, 1, 2, 3])
    assert absences(run) == ({2: "it did not answer in time"} if lost else {})


def test_a_node_that_never_answers_is_not_waited_for_in_every_round(tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(4), algorithm="polarfl", rounds=3, deadline=1.0)
    deaf(nodes, 2, {SHARES})
    run = trained(nodes)
    asked = [m for m in nodes.sent if m.metadata.dst_node_id == 1002 and step_of(m) == SHARES]
    assert len(asked) == 1
    assert absences(run) == {2: "it is still working on an earlier job"}


def test_the_sum_is_of_those_that_stay(tmp_path: Path) -> None:
    """One of four drops out of the second round: its state and the model are as without it."""
    nodes = secured(tmp_path, range(4), algorithm="fedavg", rounds=2, deadline=0.2)
    nodes.run_config["option.eta"] = 0.1
    deaf(nodes, 3, {SHARES, UPLOAD})
    secure = trained(nodes)
    (tmp_path / "plain").mkdir()
    plain_config = config(tmp_path / "plain", algorithm="fedavg", rounds=2, clients=3)
    plain = trained(Nodes(tmp_path / "plain", range(3), plain_config | {"option.eta": 0.1}))
    torch.testing.assert_close(secure.theta, plain.theta, rtol=1e-6, atol=1e-7)


def test_too_few_clients_give_no_sum_and_the_model_stays(tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(3), algorithm="polarfl", rounds=3, deadline=0.2)
    deaf(nodes, 0, {UPLOAD}, rounds=1)
    run = federated(nodes)
    before, first = (row for row, _ in zip(iter(run), range(2), strict=False))
    assert (before["clients"], first["clients"]) == (0, 0)
    list(run)
    assert run.step is not None
    assert list(run.step.clients) == [0, 1, 2]


@pytest.mark.parametrize("name", ["polarfl", "mime"])
@pytest.mark.parametrize("step", [PREKEYS, SHARES, UPLOAD, AGREE, OPEN])
def test_a_server_that_is_killed_resumes_with_the_same_bits(
    step: int, name: str, tmp_path: Path
) -> None:
    nodes = secured(tmp_path, range(3), algorithm=name, rounds=3)
    seen: list[int] = []

    def tell(node: int, message: Message) -> None:
        seen.append(step_of(message))
        if seen.count(step) == (2 if step == PREKEYS else 5):  # in the midst of a trip
            raise KeyboardInterrupt

    nodes.tell = tell
    with pytest.raises(KeyboardInterrupt):
        trained(nodes)
    nodes.tell = lambda node, message: None
    run = trained(nodes)
    assert run.record.state == "done"
    assert run.theta_sha256 == simulated(3, name, rounds=3).theta_sha256


def test_a_server_that_is_killed_after_a_sum_was_opened_asks_nobody_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of the last round is on disk, and its step is not."""
    nodes = secured(tmp_path, range(3), algorithm="polarfl", rounds=2)
    work = SecureFleet.work

    def killed(self: SecureFleet, jobs: Sequence[Job]) -> list[Done]:
        done = work(self, jobs)
        if jobs[0].t == 1:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patch:
        patch.setattr(SecureFleet, "work", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(nodes)
    count = len(nodes.sent)
    resumed = trained(nodes)
    assert resumed.theta_sha256 == simulated(3, "polarfl", rounds=2).theta_sha256
    assert not any(step_of(message) for message in nodes.sent[count:])


@pytest.mark.parametrize("lie", ["model", "scale", "bigger scale", "t", "round", "cohort"])
def test_a_lie_to_one_client_only_leaves_it_out(lie: str, tmp_path: Path) -> None:
    """Whose masks are bound to other words is in no sum that is opened."""
    nodes = secured(tmp_path, range(4), algorithm="polarfl", rounds=1, deadline=0.2)

    def tell(node: int, message: Message) -> None:
        if nodes.places[node] != 1:
            return
        content = cast("Any", message.content)
        if step_of(message) == SHARES:
            words = content["tunefree"]
            if lie == "model":
                words["bytes"] = words["bytes"][:-40] + bytes(4) + words["bytes"][-36:]
            elif lie == "t":
                words["t"] = 5
            elif lie in ("round", "cohort"):
                invite = read(content[SECURE]["data"], Invite, 10**6)
                if lie == "round":
                    invite = invite._replace(turn=invite.turn._replace(round=99))
                else:
                    invite = invite._replace(cohort=invite.cohort[:3])
                content[SECURE] = ConfigRecord({"step": SHARES, "data": written(invite)})
        elif step_of(message) == UPLOAD and "scale" in lie:
            more = 5 if lie == "bigger scale" else -5
            content[SECURE]["exponents"] = [e + more for e in content[SECURE]["exponents"]]

    nodes.tell = tell
    run = trained(nodes)
    assert run.step is not None
    assert list(run.step.clients) == [0, 2, 3]
    assert absences(run)[1]
    honest = secured(tmp_path / "honest", range(4), algorithm="polarfl", rounds=1, deadline=0.2)
    deaf(honest, 1, {SHARES})
    torch.testing.assert_close(run.theta, trained(honest).theta, rtol=1e-6, atol=1e-7)


def test_a_node_with_a_roster_answers_to_nothing_else(tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(3), algorithm="polarfl", rounds=2, secure=False)
    nodes.run_config["wait"] = 0.2
    with pytest.raises(FleetError, match="this node has a roster, and takes part in secure sums"):
        trained(nodes)
    config = {"partition-id": 1, **{k: v.format(1) for k, v in nodes.node_config.items()}}
    ask = client_app(build_model, lambda context: samples(1))
    context = Context(1, 1, cast("Any", config), RecordDict(), {**nodes.run_config})
    for kind in ("train", "evaluate"):
        with pytest.raises(ConfigError, match="takes part in secure sums only"):
            ask(Message(RecordDict(), 1, kind), context)


def test_a_node_without_a_roster_refuses_a_secure_run(tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(3), wait=0.2)
    nodes.node_config = {}
    with pytest.raises(FleetError, match="has secure sums, and this node has no roster"):
        trained(nodes)


def test_a_cohort_below_the_minimum_of_one_node_is_without_it(tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(4), algorithm="polarfl", rounds=1)
    nodes.node_config["minimum"] = "5"
    run = federated(nodes)
    rows = iter(run)
    next(rows), next(rows)
    assert set(absences(run).values()) == {
        "its work failed: a cohort of 4 is below this node's minimum 5"
    }


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    new_identity(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(ConfigError, match="others can read key .*chmod 600"):
        read_identity(tmp_path / "key")


@pytest.mark.parametrize("name", ["polarfl", "fedavg"])
def test_a_client_that_has_lost_its_state(name: str, tmp_path: Path) -> None:
    """Its share of a mean is known to nobody: it stays out, where there is a mean."""
    nodes = secured(tmp_path, range(5), algorithm=name, rounds=6)
    nodes.run_config |= {"option.eta": 0.1} if name == "fedavg" else {}
    run = federated(nodes)
    rows = iter(run)
    for _ in range(3):
        next(rows)
    rows.close()
    for path in nodes.store(1002).glob("*"):
        path.unlink()
    run = trained(nodes)
    assert run.step is not None
    came = [0, 1, 3, 4] if name == "polarfl" else [0, 1, 2, 3, 4]
    assert list(run.step.clients) == came


def test_a_client_joins_late_with_a_share_of_zero(tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(4), algorithm="parfrefl", rounds=4, clients=3)
    fourth = nodes.places.popitem()
    run = federated(nodes)
    rows = iter(run)
    next(rows), next(rows)
    nodes.places[fourth[0]] = fourth[1]
    list(rows)
    assert run.step is not None
    assert list(run.step.clients) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"algorithm": "comparfrefl"}, "a compressed upload cannot be added up"),
        ({"algorithm": "fednova"}, "FedNova does not declare"),
        ({"algorithm": "fedavg", "robust": "median"}, "compares single uploads"),
        ({"algorithm": "fedavg", "weighting": "examples"}, "every client's number of samples"),
        ({"schedule": "buffered"}, "uploads come one by one"),
        ({"sampling": "examples"}, "how many samples each client has"),
        ({"per_round": 2}, "fewer than 3 uploads hides nobody"),
        ({"roster": ""}, "with a roster"),
        ({"evaluate_on_clients": True}, "without scores on clients' data"),
    ],
)
def test_what_cannot_be_summed_is_refused_first(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    nodes = secured(tmp_path, range(3), **{"algorithm": "polarfl"} | settings)
    with pytest.raises(ConfigError, match=reason):
        trained(nodes)
    assert not nodes.sent


def test_nobody_goes_back_to_a_round_whose_sum_was_opened(tmp_path: Path) -> None:
    nodes = secured(tmp_path, range(3), algorithm="polarfl", rounds=2)
    trained(nodes)
    nodes.run_config |= {"from_round": 1, "rounds": 3}
    with pytest.raises(ConfigError, match="nodes take part in each round once"):
        trained(nodes)
