"""What every algorithm must keep to, whoever wrote it, tried on a small problem.

A subject is a name from the registry, `"module:Class"`, an algorithm, or what makes one from the
system constants. What makes one is tried with some clients, with all of them, and with one alone.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch

from tunefree.algorithms import build
from tunefree.conformance.problem import (
    D,
    Flat,
    Watched,
    content,
    different,
    is_state,
    kept,
    play,
    sent,
    start,
    vectors,
    watch,
)
from tunefree.core import Algorithm, Exchange, Reply, System
from tunefree.errors import ConfigError
from tunefree.fleet.loopback import Loopback
from tunefree.fleet.pool import Pool
from tunefree.wire import decode, encode
from tunefree.wire.codec import encoded_fields
from tunefree.wire.message import field_bits, is_finite

Subject: TypeAlias = Algorithm | Callable[[System], Algorithm] | str
SOME = System(N=6, S=3, K=2, T=8)
SYSTEMS = (SOME, SOME._replace(S=SOME.N, K=1), System(N=1, S=1, K=1, T=8))
PARTS = ("sys", "server", "client", "opening", "round")


class Verdict(NamedTuple):
    """One check, and what to change; nothing to change means that it passed."""

    check: str
    complaint: str


def check_algorithm(subject: Subject, pool: bool = False) -> list[str]:
    """Everything that must change, one sentence each; an empty list if nothing must.

    `pool` also runs it on worker processes, which takes a few seconds.

    >>> check_algorithm("fedavg")
    []
    """
    return [verdict.complaint for verdict in verdicts(subject, pool) if verdict.complaint]


def verdicts(subject: Subject, pool: bool = False) -> Iterator[Verdict]:
    """One verdict per check; where the first ones fail, the others are not tried."""
    algos = made(subject)
    for name, check in (CHECKS | {"pool": on_the_pool} if pool else CHECKS).items():
        found = (complaint_of(check, algo) for algo in algos)
        complaint = next(filter(None, found), "")
        yield Verdict(name, complaint)
        if complaint and name in ("contract", "messages", "plays"):
            return


def made(subject: Subject) -> list[Algorithm]:
    """The algorithms to try."""
    if not isinstance(subject, str | type | partial) and not inspect.isroutine(subject):
        return [cast("Algorithm", subject)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(subject, str) and ":" not in subject:
            return [build(subject, sys) for sys in SYSTEMS]
        make = imported(subject) if isinstance(subject, str) else subject
        make = cast("Callable[[System], Algorithm]", getattr(make, "theory", make))
        try:
            return [make(sys) for sys in SYSTEMS]
        except TypeError as error:
            raise ConfigError(
                f"{subject!r} cannot be made from the system constants alone ({error}); give "
                "every other field a default, or hand over a function of the system"
            ) from error


def imported(path: str) -> Callable[[System], Algorithm]:
    module, _, name = path.partition(":")
    try:
        found: Callable[[System], Algorithm] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path!r} cannot be imported: {error}; write module:Class") from error
    return found


def complaint_of(check: Callable[[Algorithm], Iterator[str]], algo: Algorithm) -> str:
    """The first complaint about the algorithm; an error of its own is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            complaint = next(check(algo), "")
    except Exception as error:
        complaint = f"it fails where it must not: {reason(error)}"
    if complaint and isinstance(sys := getattr(algo, "sys", None), System) and sys != SOME:
        return f"{complaint} (with N = {sys.N}, S = {sys.S}, K = {sys.K})"
    return complaint


def reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def contract(algo: Algorithm) -> Iterator[str]:
    for name in PARTS:
        if not hasattr(algo, name):
            yield f"it has no `{name}`; an algorithm has {', '.join(PARTS)}"
    if not isinstance(algo.sys, System):
        yield "`sys` is not a tunefree.System; keep the one it was made with"
    theta0 = start(torch.float32)
    server, client = algo.server(theta0), algo.client(theta0)
    for role, state in (("server", server), ("client", client)):
        if not is_state(state):
            yield f"`{role}` gives a {type(state).__name__}; give a NamedTuple, empty if need be"
    if "theta" not in server._fields or not torch.equal(server.theta, theta0):
        yield "`server(theta0)` does not hold the model; give its state a field `theta` = theta0"
    for role, trips in (("opening", algo.opening()), ("round", algo.round())):
        if not isinstance(trips, tuple) or not all(isinstance(e, Exchange) for e in trips):
            yield f"`{role}` gives no tuple of Exchange(Down, Up, down, work, up); give one"
    if not algo.round():
        yield "`round` gives no exchange; give at least one"


def plays(algo: Algorithm) -> Iterator[str]:
    """Raises where it cannot be played."""
    play(algo)
    yield ""


def fixed_states(algo: Algorithm) -> Iterator[str]:
    theta0 = start(torch.float32)
    first = {"up": algo.server(theta0), "work": algo.client(theta0)}
    for state in first.values():
        for name, value in state._asdict().items():
            if type(value) not in (torch.Tensor, int, float):
                yield (
                    f"the field `{name}` of {type(state).__name__} begins as a "
                    f"{type(value).__name__}; begin with a vector (0 * theta0), an int or a float"
                )

    def see(role: str, _: object, result: Any, *given: Any) -> str:
        state = kept(role, result)
        if state is None:
            return ""
        begun = first[role]
        if type(state) is not type(begun):
            return f"`{role}` gives a {type(state).__name__}; give a {type(begun).__name__}"
        for name, now, then in zip(state._fields, state, begun, strict=True):
            if type(now) is not type(then):
                return (
                    f"`{role}` turns the field `{name}` from {type(then).__name__} into "
                    f"{type(now).__name__}; keep its type from the beginning on"
                )
        return ""

    yield from watch(algo, see)


def precise(algo: Algorithm) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64):

        def see(role: str, _: object, result: Any, *given: Any, dtype: torch.dtype = dtype) -> str:
            for v in vectors(result):
                if v.dtype != dtype or v.shape != (D,):
                    return (
                        f"`{role}` gives a vector of {v.dtype} and shape {tuple(v.shape)} where "
                        f"the model has {dtype} and ({D},); make vectors from those given"
                    )
            return ""

        yield from watch(algo, see, dtype=dtype)


def pure(algo: Algorithm) -> Iterator[str]:
    itself = content(getattr(algo, "__dict__", {}))
    said: list[str] = []

    def call(role: str, function: Callable[..., Any], *given: Any) -> Any:
        copy, before = deepcopy(given), content(given)
        result = function(*given)
        if content(given) != before:
            said.append(f"`{role}` changes what it is given; write a = a + b, not a += b")
        elif content(getattr(algo, "__dict__", {})) != itself:
            said.append(f"`{role}` changes the algorithm; keep what lasts in its two states")
        elif content(function(*copy)) != content(result):
            said.append(f"`{role}` gives another result when repeated; draw from F.rng alone")
        return result

    play(Watched(lambda: algo, call))
    yield from said


def deterministic(algo: Algorithm) -> Iterator[str]:
    runs = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            runs.append(play(deepcopy(algo)))
    if different(*runs):
        yield "two runs with one seed differ; draw from F.rng alone"


def encodable(algo: Algorithm) -> Iterator[str]:
    def see(role: str, _: object, result: Any, *given: Any) -> str:
        message = sent(role, result)
        if message is None:
            return ""
        if not is_state(message):
            return f"`{role}` sends a {type(message).__name__}; send a NamedTuple"
        try:
            back = decode(encode(message), type(message), like=start(torch.float32))
        except Exception as error:
            return (
                f"`{role}` sends a {type(message).__name__} that cannot cross a wire "
                f"({reason(error)}); its fields must be declared and sent as Vec, int, float or "
                "Compressed"
            )
        if content(back) != content(message):
            return f"`{role}` sends a {type(message).__name__} that arrives as something else"
        return ""

    with suppress(Exception):  # whether it plays at all is the next check
        yield from watch(algo, see)


def counted(algo: Algorithm) -> Iterator[str]:
    def see(role: str, _: object, result: Any, *given: Any) -> str:
        message = sent(role, result)
        if message is None:
            return ""
        for (_, payload), name, value in zip(
            encoded_fields(message), message._fields, message, strict=True
        ):
            if not 0 <= 8 * len(payload) - field_bits(value) <= 7:
                return (
                    f"`{role}` sends a field `{name}` of {8 * len(payload)} bits that says it has "
                    f"{field_bits(value)}; let its `bits` say what its `to_bytes` gives"
                )
        return ""

    yield from watch(algo, see)


def through_bytes(algo: Algorithm) -> Iterator[str]:
    if different(play(algo), play(algo, fleet_of=Loopback)):
        yield "a run through bytes differs; send all that matters as fields of the messages"


def on_the_pool(algo: Algorithm) -> Iterator[str]:
    if different(play(algo), play(algo, fleet_of=partial(Pool, workers=2))):
        yield "a run on worker processes differs; use nothing that lives outside the two states"


def in_any_order(algo: Algorithm) -> Iterator[str]:
    def call(role: str, function: Callable[..., Any], *given: Any) -> Any:
        if role == "up":
            server, replies = given
            return function(server, [*replies[1:], replies[0]])
        return function(*given)

    plain = play(algo, torch.float64)
    turned = play(Watched(lambda: algo, call), torch.float64)
    for a, b in zip(plain, turned, strict=True):
        for v, w in zip(vectors(a.server), vectors(b.server), strict=True):
            if not torch.allclose(v, w, rtol=1e-9, atol=1e-12):
                yield "`up` heeds the order of the replies; treat them alike, as `mean` does"


def without_gradient(algo: Algorithm) -> Iterator[str]:
    def see(role: str, _: object, result: Any, *given: Any) -> str:
        state = kept(role, result)
        for name, value in state._asdict().items() if state else ():
            if not is_finite(value):
                return (
                    f"where all gradients are zero, `{role}` makes `{name}` something that is not "
                    "finite; guard divisions, as tunefree.core.unit does"
                )
        return ""

    yield from watch(algo, see, oracle_of=Flat)


def resumable(algo: Algorithm) -> Iterator[str]:
    pristine = deepcopy(algo)

    def call(role: str, function: Callable[..., Any], *given: Any) -> Any:
        state, *rest = given
        return function(recalled(state) if is_state(state) else state, *rest)

    if different(play(algo), play(Watched(lambda: deepcopy(pristine), call))):
        yield "a run that is taken up again differs; keep all that lasts in the two states"


def recalled(state: Any) -> Any:
    """The state as it comes back from a record of arrays."""
    arrays = [np.array(value) for value in state]
    return type(state)(
        *(
            torch.from_numpy(array) if isinstance(value, torch.Tensor) else type(value)(array)
            for array, value in zip(arrays, state, strict=True)
        )
    )


def lenient(algo: Algorithm) -> Iterator[str]:
    def see(role: str, function: Callable[..., Any], _: object, *given: Any) -> str:
        if role != "up":
            return ""
        server, replies = given
        cases: dict[str, list[Reply]] = {
            "one reply alone": replies[:1],
            "late replies": [reply._replace(tau=2) for reply in replies],
        }
        for case, come in cases.items():
            try:
                well = all(map(is_finite, function(server, come)))
            except Exception as error:
                return f"`up` refuses {case} ({reason(error)}); average those that came"
            if not well:
                return f"`up` makes {case} into a state that is not finite; average those that came"
        return ""

    yield from watch(algo, see)
    play(algo, opening="zero")


def theory(algo: Algorithm) -> Iterator[str]:
    rule = getattr(type(algo), "theory", None)
    if rule is None:
        return
    needed = [p for p in inspect.signature(rule).parameters.values() if p.default is p.empty]
    if len(needed) != 1:
        yield "`theory` asks for more than N, S, K and T; a tuning-free method has nothing else"
    for sys in SYSTEMS:
        algo = rule(sys)
        if algo.sys != sys or content(vars(algo)) != content(vars(rule(sys))):
            yield "`theory(sys)` does not give the algorithm of that sys; make its steps from it"


CHECKS: dict[str, Callable[[Algorithm], Iterator[str]]] = {
    "contract": contract,
    "messages": encodable,
    "plays": plays,
    "states": fixed_states,
    "precision": precise,
    "purity": pure,
    "determinism": deterministic,
    "bits": counted,
    "bytes": through_bytes,
    "order": in_any_order,
    "zero gradients": without_gradient,
    "resuming": resumable,
    "replies": lenient,
    "theory": theory,
}
