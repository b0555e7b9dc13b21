"""Noise on secure sums in a federation: exact, paid once, and on no single upload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ConfigRecord, Message

from tests.flower.nodes import Nodes, config
from tests.flower.test_private import ledger_of
from tests.flower.test_secure import absences, deaf, federated, quick, secured, step_of, trained
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.job import Done, Job
from tunefree.flower.client_secure import bounded
from tunefree.flower.envelope import Answer, unpack
from tunefree.flower.private import fits, fitting, room
from tunefree.flower.secure import SecureFleet
from tunefree.flower.trips import SECURE
from tunefree.privacy.ledger import Ledger
from tunefree.privacy.noise import BITS
from tunefree.privacy.release import Summed
from tunefree.secure.arithmetic import from_integers, scale, to_integers
from tunefree.secure.messages import AGREE, OPEN, PREKEYS, SHARES, UPLOAD, Invite, Terms
from tunefree.secure.messages import decode as read
from tunefree.secure.messages import encode as written

__all__ = ["quick"]  # a fixture
STATELESS: dict[str, Any] = {"algorithm": "polarfl_stateless", "epsilon": 8.0}
ONE_ROUND: dict[str, Any] = {**STATELESS, "rounds": 1, "deadline": 0.2}
CLIPPED: dict[str, Any] = {"algorithm": "fedavg", "option.eta": 0.1, "epsilon": 8.0, "clip": 0.05}


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise is zero, so that models can be compared."""
    monkeypatch.setattr(
        "tunefree.privacy.release.discrete_gaussian", lambda size, **_: np.zeros(size, np.int64)
    )


def private(folder: Path, places: int = 4, **more: Any) -> Nodes:
    return secured(folder, range(places), **{**STATELESS, "rounds": 3, "deadline": 0.2, **more})


def entered(nodes: Nodes) -> int:
    (count,) = ledger_of(nodes)._db.execute("SELECT COUNT(*) FROM released").fetchone()
    return int(count)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("given", [STATELESS, CLIPPED])
def test_the_sum_is_that_of_the_uploads(given: dict[str, Any], tmp_path: Path) -> None:
    secure = trained(private(tmp_path, **given))
    (tmp_path / "plain").mkdir()
    settings = config(tmp_path / "plain", clients=4, rounds=3, **given)
    plain = trained(Nodes(tmp_path / "plain", range(4), settings))
    torch.testing.assert_close(secure.theta, plain.theta, rtol=1e-4, atol=1e-5)


def test_a_run_spends_its_budget_and_says_who_sees_what(tmp_path: Path) -> None:
    nodes = private(tmp_path)
    run = trained(nodes)
    rows = run.record.history()
    assert [row["epsilon"] for row in rows] == sorted(row["epsilon"] for row in rows)
    assert rows[-1]["epsilon"] == pytest.approx(8.0)
    assert entered(nodes) == 3
    assert run.record.facts().privacy["trust"].startswith("the server, which sees sums of uploads")
    for message in nodes.received:
        if "run" in cast("Any", message.content).get("tunefree", {}):
            answer: Answer = unpack(message.content, Answer, "a client")
            assert (answer.n, answer.drawn, answer.exponents) == (1, 0, "0")


def test_two_runs_have_different_noise(tmp_path: Path) -> None:
    runs = [trained(private(tmp_path / name)) for name in "ab"]
    assert runs[0].theta_sha256 != runs[1].theta_sha256


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("step", [SHARES, UPLOAD])
def test_who_drops_out_is_a_zero_and_the_denominator_stays(step: int, tmp_path: Path) -> None:
    nodes = private(tmp_path, rounds=1)
    deaf(nodes, 2, {step})
    run = trained(nodes)
    assert absences(run) == {2: "it did not answer in time"}
    value = released(nodes)
    (tmp_path / "all").mkdir()
    plain = Nodes(tmp_path / "all", range(4), config(tmp_path / "all", clients=4, **ONE_ROUND))
    plain.change = lambda node, reply: (
        None if node == 1002 and reply.metadata.message_type == "train" else reply
    )
    expected = trained(plain)
    np.testing.assert_allclose(value, released(plain), atol=1e-5)
    torch.testing.assert_close(run.theta, expected.theta, rtol=1e-4, atol=1e-5)


def released(nodes: Nodes) -> Any:
    """The last sum, in units of the bound."""
    sigma = ledger_of(nodes)._db.execute("SELECT sigma FROM released").fetchone()[0]
    stored = "SELECT value FROM released WHERE value IS NOT NULL"
    ((value,),) = ledger_of(nodes)._db.execute(stored).fetchall()
    return np.frombuffer(value, np.int64) * (sigma / 2**BITS)


@pytest.mark.usefixtures("silent")
def test_a_round_without_a_sum_releases_noise_and_is_paid_for(tmp_path: Path) -> None:
    nodes = private(tmp_path, places=3, rounds=2)
    deaf(nodes, 0, {UPLOAD}, rounds=1)
    rows = list(federated(nodes))
    assert [row["clients"] for row in rows] == [0, 0, 3]
    assert entered(nodes) == 2
    assert ledger_of(nodes).spent() == pytest.approx(8.0)


Stop = Callable[[pytest.MonkeyPatch, Nodes], None]


def at(step: int) -> Stop:
    """In the midst of the second round's trip."""

    def stop(patch: pytest.MonkeyPatch, nodes: Nodes) -> None:
        seen: list[int] = []

        def tell(node: int, message: Message) -> None:
            seen.append(step_of(message))
            if seen.count(step) == (2 if step == PREKEYS else 6):
                raise KeyboardInterrupt

        patch.setattr(nodes, "tell", tell)

    return stop


def before_the_entry(patch: pytest.MonkeyPatch, nodes: Nodes) -> None:
    work = SecureFleet.work

    def killed(self: SecureFleet, jobs: Sequence[Job]) -> list[Done]:
        done = work(self, jobs)
        if jobs[0].t == 1:
            raise KeyboardInterrupt
        return done

    patch.setattr(SecureFleet, "work", killed)


def in_the_entry(patch: pytest.MonkeyPatch, nodes: Nodes) -> None:
    patch.setattr(Ledger, "once", interrupted(Ledger.once, after=False))


def after_the_entry(patch: pytest.MonkeyPatch, nodes: Nodes) -> None:
    patch.setattr(Ledger, "once", interrupted(Ledger.once, after=True))


def interrupted(once: Any, after: bool) -> Any:
    def killed(self: Ledger, key: str, release: Any, value: Any, *rest: Any) -> bytes:
        def drawn() -> bytes:
            if key == "round 1" and not after:
                raise KeyboardInterrupt
            return cast("bytes", value())

        result = cast("bytes", once(self, key, release, drawn, *rest))
        if key == "round 1":
            raise KeyboardInterrupt
        return result

    return killed


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    "stop",
    [
        *(at(step) for step in (PREKEYS, SHARES, UPLOAD, AGREE, OPEN)),
        before_the_entry,
        in_the_entry,
        after_the_entry,
    ],
    ids=["prekeys", "shares", "upload", "agree", "open", "before", "in", "after"],
)
def test_a_server_that_was_stopped_releases_every_sum_once(stop: Stop, tmp_path: Path) -> None:
    expected = trained(private(tmp_path / "whole", rounds=2))
    nodes = private(tmp_path / "stopped", rounds=2)
    with pytest.MonkeyPatch.context() as patch:
        stop(patch, nodes)
        with pytest.raises(KeyboardInterrupt):
            trained(nodes)
    before, asked = entered(nodes), list[int]()
    nodes.tell = lambda node, message: asked.append(step_of(message))
    run = trained(nodes)
    assert run.theta_sha256 == expected.theta_sha256
    assert (entered(nodes), run.record.state) == (2, "done")
    assert ledger_of(nodes).spent() == pytest.approx(8.0)
    if stop in (before_the_entry, in_the_entry, after_the_entry):
        assert before == 1 + (stop is after_the_entry)
        assert not any(asked)  # nobody was asked again


def test_a_scale_that_is_too_coarse_is_refused(tmp_path: Path) -> None:
    nodes = private(tmp_path, rounds=1)

    def tell(node: int, message: Message) -> None:
        if step_of(message) == SHARES:
            content = cast("Any", message.content)
            invite = read(content[SECURE]["data"], Invite, 10**6)
            invite = invite._replace(terms=invite.terms._replace(noise=1e6))
            content[SECURE] = ConfigRecord({"step": SHARES, "data": written(invite)})

    nodes.tell = tell
    run = trained(nodes)
    assert "the server's scale is not this method's" in absences(run)[1]


@pytest.mark.parametrize("n", [3, 40, 3_000, 10**5])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 30.0])
def test_an_integer_of_the_sum_is_a_whole_number_of_steps_of_the_noise(
    n: int, sigma: float
) -> None:
    plain = Terms(n, 0.0, (2,), (0.5,))
    terms = fitting(plain, sigma)
    steps = 1 / scale(terms, 0.5) / (sigma * 0.5 / 2**BITS)
    assert steps == pytest.approx(round(steps), rel=1e-12)
    assert terms.noise >= sigma * (1 - 1e-12)  # the sum and 12 standard deviations fit
    assert fits(terms, plain)
    assert room(terms) <= max(3 * n, 2**19)


def test_a_client_rounds_so_that_its_norm_does_not_grow() -> None:
    rng = np.random.default_rng(0)
    terms = fitting(Terms(3, 0.0, (10_000, 10_000), (0.5, 0.5)), 200.0)
    v = rng.normal(size=(2, 10_000)).astype(np.float32)
    cut = bounded([*(v / np.linalg.norm(v) * 0.7)], 0.5, terms)
    integers = to_integers(cut, terms).view(np.int32).astype(np.int64)
    assert int(integers @ integers) <= (0.5 * scale(terms, 0.5)) ** 2
    back = np.concatenate(from_integers(integers.astype(np.int32).view(np.uint32), terms))
    np.testing.assert_array_equal(back, np.concatenate(cut))
    assert np.linalg.norm(back) > 0.45
    v[0, 0] = np.nan
    assert not np.any(bounded([*v], 0.5, terms))


def test_a_client_that_makes_the_sum_wrap_around_takes_no_protection_from_others() -> None:
    """It adds up to the last integer; another's small upload then moves the noisy sum a little."""
    noise = np.array([5, -7, 0], np.int64)
    edge = np.array([2**31 - 1, -(2**31), 0], np.int32)
    moved = (edge.astype(np.int64) + np.array([1, -1, 1])).astype(np.int32)  # modulo 2^32
    a, b = (Summed(words, 3).plus(noise) for words in (edge, moved))
    around = (b - a + 3 * 2**31) % (3 * 2**32) - 3 * 2**31
    assert around.tolist() == [3, -3, 3]
    assert Summed(np.array([2, -2, 0], np.int32), 3).plus(noise).tolist() == [11, -13, 0]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"algorithm": "fedavg", "option.eta": 0.1, "epsilon": 8.0}, "give clip, the largest n"),
        ({"epsilon": 0.01, "rounds": 20}, "raise epsilon, or lower rounds"),
        ({"coins": True}, "a sum of too few clients is not opened"),
        ({"evaluate_on_clients": True}, "without scores on clients' data"),
        ({"algorithm": "polarfl"}, "cannot be promised: clients of PolarFL"),
        ({"unit": "record", "records": 24.0}, "was not tested with sums"),
    ],
)
def test_what_noise_on_a_sum_cannot_keep_is_refused_first(
    more: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    nodes = private(tmp_path, **more)
    with pytest.raises(ConfigError, match=reason):
        trained(nodes)
    assert not nodes.sent


def test_a_round_does_not_start_with_fewer_than_a_sum_needs(tmp_path: Path) -> None:
    nodes = private(tmp_path, places=3, wait=0.5)
    run = federated(nodes)
    nodes.places = {1000: 0, 1001: 1}
    with pytest.raises(FleetError, match=r"fewer than 3 clients were there within 0.5 s"):
        list(run)
    assert entered(nodes) == 0
