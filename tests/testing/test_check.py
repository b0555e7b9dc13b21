"""The public suite passes all of ours, and names every mistake that a user's own can make."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch

from tests.variants import METHODS
from tunefree.cli import main
from tunefree.core import About, Exchange, Method, Oracle, Reply, Step, System, Vec, bind, mean
from tunefree.errors import ConfigError
from tunefree.fleet.serial import Serial
from tunefree.methods.registry import build
from tunefree.testing.check import CHECKS, check_algorithm, findings

SYS = System(N=5, S=2, K=2, T=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_registered_algorithm_passes_on_the_pool(name: str) -> None:
    assert check_algorithm(name, pool=True) == []


class Late(Serial):
    """A pool whose workers do not know the previous states."""

    def __init__(self, *given: Any, workers: int) -> None:
        super().__init__(*given)
        self.states.accept = lambda used: None  # type: ignore[method-assign]


def test_the_pool_is_tried_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefree.testing.check.Pool", Late)
    assert check_algorithm("fedavg", pool=True) == []
    *others, last = findings("scaffold", pool=True)
    assert [check for check, _ in others] == list(CHECKS)
    assert not any(complaint for _, complaint in others)
    assert "a run on worker processes differs; use nothing" in last.complaint


class Server(NamedTuple):
    theta: Vec
    m: Vec


class Client(NamedTuple):
    c_i: Vec


class Down(NamedTuple):
    theta: Vec


class Up(NamedTuple):
    delta: Vec


@dataclass(frozen=True)
class Mine(Method):
    """A user's own method, without `about`; tests replace one part at a time by a wrong one."""

    new_server: Callable[[Vec], Any] = lambda theta0: Server(theta0, 0 * theta0)
    new_client: Callable[[Vec], Any] = lambda theta0: Client(0 * theta0)
    down: Callable[[Server], Any] = lambda s: Down(s.theta)
    delta: Callable[[Client, Vec, Oracle], Any] = lambda client, grad, F: grad
    send: Callable[[Vec], Any] = Up
    keep: Callable[[Client, Vec], Any] = lambda client, grad: Client(grad)
    move: Callable[[Server, Vec, Sequence[Reply]], Any] = lambda s, m, replies: Server(
        s.theta - 0.1 * m, m
    )
    start: Callable[[], tuple[Exchange, ...]] = lambda: ()
    trips: Callable[[Exchange], Any] = lambda exchange: (exchange,)

    def server(self, theta0: Vec) -> Any:
        return self.new_server(theta0)

    def client(self, theta0: Vec) -> Any:
        return self.new_client(theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return self.start()

    def round(self) -> Any:
        return self.trips(Exchange(Down, Up, self.down, self.local, self.aggregate))

    def local(self, client: Client, down: Down, F: Oracle) -> tuple[Client, Any]:
        grad = F.grad(down.theta, F.draw())
        return self.keep(client, grad), self.send(self.delta(client, grad, F))

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Any:
        return self.move(s, mean(r.up.delta for r in replies), replies)


def test_a_users_own_algorithm_passes() -> None:
    for subject in (Mine, Mine(), bind(Mine(), SYS), lambda sys: Mine(), f"{__name__}:Mine"):
        assert check_algorithm(subject) == []


class Words(NamedTuple):
    delta: list[float]


class Untyped(NamedTuple):
    delta: Any


class Other(NamedTuple):
    """Has the fields that were declared, and another name."""

    delta: Vec


class Fine(NamedTuple):
    delta: Vec
    weight: float


class Aside:
    """What an algorithm must not have: state beside its two states."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self, v: Vec) -> Vec:
        self.calls += 1
        return self.calls * v


def changed(v: Vec) -> Vec:
    return v.add_(1)


def whole(theta0: Vec) -> Any:
    return [theta0]


WITHOUT = "makes an Exchange without its messages; write Exchange(Down, Up, down, work, up)"
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    # check, what is wrong, the complaint
    ("contract", {"new_server": whole}, "`server` returns a list; return a NamedTuple"),
    ("contract", {"new_client": whole}, "`client` returns a list; return a NamedTuple"),
    ("contract", {"new_server": Client}, "give its state a field `theta` = theta0"),
    ("contract", {"new_server": lambda v: Server(0 * v, v)}, "does not contain the model"),
    ("contract", {"trips": lambda e: ()}, "`round` returns no exchange; return at least one"),
    ("contract", {"trips": lambda e: [e]}, "`round` does not return a tuple of"),
    ("contract", {"trips": lambda e: (tuple(e),)}, "`round` does not return a tuple of"),
    ("contract", {"trips": lambda e: (Exchange(*e[2:]),)}, f"`round` {WITHOUT}"),
    (
        "contract",
        {"trips": lambda e: (Exchange(*e[2:], *e[:2]),)},
        "`round` declares <lambda> as its Down; declare a NamedTuple class there: Exchange(",
    ),
    ("contract", {"trips": lambda e: (e._replace(Up=list),)}, "`round` declares list as its Up;"),
    (
        "contract",
        {
            "trips": lambda e: (
                e._replace(
                    Up=Up(Vec()),
                ),
            )
        },
        "declares a Up as its Up; declare a",
    ),
    ("contract", {"trips": lambda e: e.work(1)}, "it raises an error: Mine.local()"),
    ("contract", {"start": lambda: (Exchange(*"abc"),)}, f"`opening` {WITHOUT}"),
    ("messages", {"send": Other}, "`work` sends a Other where the exchange declares Up; send"),
    ("messages", {"down": lambda s: Client(s.theta)}, "`down` sends a Client where the exchange"),
    ("messages", {"send": lambda v: v}, "`work` sends a Tensor; send a NamedTuple"),
    ("messages", {"send": lambda v: Words(v.tolist())}, "field `delta` is a list, which cannot be"),
    ("messages", {"send": Untyped}, "declared and sent as Vec, int, float or Compressed"),
    ("messages", {"send": lambda v: Fine(v, 0.1)}, "does not fit into 32 bits; round it first"),
    ("messages", {"down": lambda s: {"theta": s.theta}}, "`down` sends a dict"),
    ("runs", {"move": lambda s, m, r: 1 / 0}, "it raises an error: division by zero"),
    ("runs", {"delta": lambda c, g, F: g[:99] @ g[:1]}, "it raises an error: client"),
    ("messages", {"delta": lambda c, g, F: g / 0}, "a number is not finite"),
    ("states", {"new_client": lambda v: Client(None)}, "`c_i` of Client starts as a NoneType"),  # type: ignore[arg-type]
    ("states", {"move": lambda s, m, r: Server(m, 0)}, "`m` from Tensor into int"),  # type: ignore[arg-type]
    ("states", {"keep": lambda c, g: Down(g)}, "`work` returns a Down; return a Client"),
    ("messages", {"delta": lambda c, g, F: g.double()}, "type 1 is not 0, torch.float32"),
    (
        "precision",
        {"keep": lambda c, g: Client(g.double())},
        "`work` returns a vector of torch.float64",
    ),
    ("precision", {"delta": lambda c, g, F: g.float()}, "where the model has torch.float64"),
    ("precision", {"keep": lambda c, g: Client(g[:2])}, "and shape (2,)"),
    ("purity", {"keep": lambda c, g: Client(changed(c.c_i))}, "`work` changes its arguments"),
    ("purity", {"move": lambda s, m, r: Server(changed(s.theta), m)}, "`up` changes its"),
    ("purity", {"delta": lambda c, g, F: g + torch.rand(())}, "draw only from F.rng"),
    ("determinism", {"delta": lambda c, g, F: g + torch.rand(())}, "two runs with one seed differ"),
    ("order", {"move": lambda s, m, r: Server(s.theta - r[0].up.delta, m)}, "depends on the order"),
    (
        "zero gradients",
        {"move": lambda s, m, r: Server(s.theta, m / m.norm())},
        "`up` makes `m` not finite",
    ),
    (
        "zero gradients",
        {"keep": lambda c, g: Client(g / g.norm())},
        "`work` makes `c_i` not finite",
    ),
    ("replies", {"move": lambda s, m, r: Server(s.theta / (len(r) - 1), m)}, "a single reply"),
    ("replies", {"move": lambda s, m, r: Server(s.theta / (r[0].tau - 2), m)}, "late replies"),
]


@pytest.mark.parametrize(("check", "wrong", "sentence"), BROKEN, ids=lambda v: str(v)[:30])
def test_each_mistake_is_named(check: str, wrong: dict[str, Any], sentence: str) -> None:
    complaints = dict(findings(bind(replace(Mine(), **wrong), SYS)))
    assert sentence in complaints[check]
    assert all("\n" not in complaint for complaint in complaints.values())


def test_the_other_checks_pass() -> None:
    """A wrong order does not concern purity, bytes or states: one fault, one complaint."""
    wrong = Mine(move=lambda s, m, r: Server(s.theta - r[0].up.delta, m))
    assert len(check_algorithm(wrong)) == 1


@dataclass(frozen=True)
class Averaging(Mine):
    """Its server's `m` is the mean of what all clients sent last, for any power but 1 wrongly."""

    power: float = 1.0
    about: ClassVar[About] = About("Mine", "averaging", "us", means={"m": "c_i"})

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Server:
        sent = mean(r.up.delta for r in replies)
        return Server(
            s.theta, s.m + len(replies) / self.sys.N * sent.sign() * sent.abs() ** self.power
        )


def test_a_mean_that_is_not_linear_in_the_uploads_is_found() -> None:
    assert dict(findings(Averaging()))["means"] == ""
    assert (
        "`up` changes the mean `m` by another amount"
        in dict(findings(Averaging(power=1.5)))["means"]
    )


def test_a_field_with_more_bits_than_it_claims_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefree.testing.check.field_bits", lambda value: 8)
    complaint = dict(findings(Mine()))["bits"]
    assert "`down` sends a field `theta` of 160 bits that claims 8; let" in complaint


def test_hidden_state_is_found() -> None:
    aside = Aside()
    complaints = dict(findings(Mine(delta=lambda c, g, F: aside.count(g))))
    for check in ("purity", "determinism", "bytes", "resuming"):
        assert complaints[check], check


class Plain:
    """A class that is not a method."""


class Bare(Mine):
    """Its field is not one, as nothing makes the class a dataclass."""

    eta: float = 0.1


class Empty(Method):
    """Has neither `server` nor `round`."""


class Worded(Mine):
    """Its formula cannot be computed."""

    about: ClassVar[About] = About("Worded", steps={"eta": "1 / K"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("subject", "complaint"),
    [
        (Plain, "Plain is not a tunefree.Method; write class Plain(Method)"),
        (Bare, "Bare is not a frozen dataclass; write @dataclass(frozen=True) above it"),
        (Empty, "it has no `round` and no `server`; a method has server and round"),
        (Worded, "the formula of its step `eta` is no Step; write Step(text, function)"),
    ],
)
def test_what_is_no_method_is_named(subject: Any, complaint: str) -> None:
    assert check_algorithm(subject) == [complaint]
    with pytest.raises(ConfigError) as error:
        build(subject, SYS)
    assert str(error.value).endswith(f"is not an algorithm: {complaint}")


def test_a_function_must_make_a_method() -> None:
    with pytest.raises(ConfigError, match="does not make an algorithm: int is not a tunefree.Me"):
        check_algorithm(lambda sys: 7)  # type: ignore[arg-type]


class Opened(Mine):
    """Divides by what only its opening gives."""

    def opening(self) -> tuple[Exchange, ...]:
        return (
            Exchange(
                Down, Up, self.down, self.local, lambda s, replies: Server(s.theta, 1 + 0 * s.m)
            ),
        )

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Any:
        return Server(s.theta - mean(r.up.delta for r in replies) / s.m, s.m)


def test_an_opening_may_be_skipped() -> None:
    complaints = dict(findings(Opened))
    assert "is not finite" in complaints.pop("replies")
    assert not any(complaints.values())


class Counting(Mine):
    """Counts its rounds in itself."""

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Any:
        self.__dict__["t"] = 1 + self.__dict__.get("t", 0)
        return super().aggregate(s, replies)._replace(m=0 * s.m + self.__dict__["t"])


def test_state_inside_the_algorithm_is_found() -> None:
    complaints = dict(findings(Counting))
    assert (
        "`up` changes the algorithm; store lasting values in its two states" in complaints["purity"]
    )
    assert "a resumed run differs" in complaints["resuming"]


def test_state_that_no_record_stores_is_found() -> None:
    def delta(client: Client, grad: Vec, F: Oracle) -> Vec:
        times: int = 1 + getattr(client.c_i, "times", 0)
        grad.times = times  # type: ignore[attr-defined]
        return times * grad

    complaints = dict(findings(Mine(delta=delta)))
    assert "a resumed run differs; store all" in complaints["resuming"]


def test_a_field_that_no_record_can_store_is_found() -> None:
    class Odd(NamedTuple):
        theta: Vec
        name: str

    wrong = Mine(
        new_server=lambda v: Odd(v, "x"),
        move=lambda s, m, r: s._replace(theta=s.theta - m),
    )
    assert "`name` of Odd starts as a str; start with a vector" in "".join(check_algorithm(wrong))


@dataclass(frozen=True)
class Greedy(Mine):
    """Its step needs more than N, S, K and T."""

    about: ClassVar[About] = About("Greedy", steps={"eta": Step("1 / L", lambda L: 1 / L)})


def test_a_step_uses_the_system_only() -> None:
    (complaint,) = check_algorithm(Greedy)
    assert complaint == "its step `eta` depends on L; a step has only N, S, K, T and t"


def test_names_that_cannot_be_found_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'fedavg'"):
        check_algorithm("fedavgg")
    for path in ("no_such_module:Mine", f"{__name__}:Yours", ":Mine"):
        with pytest.raises(ConfigError, match="could not be imported: .* package.module:name"):
            check_algorithm(path)


def test_a_fault_at_full_participation_is_reported_as_such() -> None:
    def move(s: Server, m: Vec, replies: Sequence[Reply]) -> Server:
        return Server(s.theta * (np.nan if len(replies) == 6 else 1), m)

    (complaint, *_) = check_algorithm(Mine(move=move))
    assert complaint.endswith("(with N = 6, S = 6, K = 1)")


def command(*words: str) -> int:
    return main(["check", *words])


STRANGER = """
from tests.testing.test_check import Mine, Server

def wrong(sys):
    return Mine(move=lambda s, m, replies: Server(s.theta - replies[0].up.delta, m))
"""


def test_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("fedavg") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{check}: ok" for check in CHECKS]
    monkeypatch.chdir(tmp_path)
    Path("stranger_of_test_check.py").write_text(STRANGER)
    assert command("stranger_of_test_check:wrong") == 1
    assert "order: `up` depends on the order of the replies; treat" in capsys.readouterr().out
    assert command("stranger_of_test_check:wrong", "--format", "json") == 1
    rows = {row["check"]: row["complaint"] for row in json.loads(capsys.readouterr().out)}
    assert rows.keys() == CHECKS.keys()
    assert [check for check, complaint in rows.items() if complaint] == ["order"]
