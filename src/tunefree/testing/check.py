"""What every algorithm must follow, whoever wrote it, tested on a small problem.

A subject is a name from the registry, `"module:Class"`, an algorithm, or a function that makes one
from the system constants. The latter is tested with some clients, with all, and with a single one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch

from tunefree.core import (
    UNBOUND,
    Exchange,
    Message,
    Method,
    Reply,
    System,
    about,
    horizon_steps,
    unwrapped,
    with_system,
)
from tunefree.fleet.pool import Pool
from tunefree.fleet.states import arrays, restore
from tunefree.importing import import_name
from tunefree.methods.own import Maker, class_complaint
from tunefree.methods.registry import build
from tunefree.testing.observe import (
    PROBLEM,
    Flat,
    Part,
    content,
    differ,
    initial_model,
    inspect_calls,
    intercepted,
    is_namedtuple,
    message_in,
    run_problem,
    state_in,
    vectors,
)
from tunefree.wire import decode, encode
from tunefree.wire.codec import encoded_fields
from tunefree.wire.message import field_bits, is_finite

Subject: TypeAlias = Maker | str
SOME = System(N=6, S=3, K=2, T=8)
SYSTEMS = (SOME, SOME._replace(S=SOME.N, K=1), System(N=1, S=1, K=1, T=8))
EXCHANGE = "Exchange(Down, Up, down, work, up)"


class Finding(NamedTuple):
    """One check, and what to change; empty means that it passed."""

    check: str
    complaint: str


def check_algorithm(subject: Subject, pool: bool = False) -> list[str]:
    """Everything that must change, one sentence each; an empty list if nothing.

    Args:
        subject: A name from the registry, `"module:Class"`, an algorithm, a class, or a function
            of the system constants.
        pool: Also run it on worker processes, which takes a few seconds.

    >>> check_algorithm("fedavg")
    []
    """
    return [finding.complaint for finding in findings(subject, pool) if finding.complaint]


def findings(subject: Subject, pool: bool = False) -> Iterator[Finding]:
    """One finding per check; if the first ones fail, the others are not tried."""
    maker: Any = subject
    if isinstance(subject, str) and ":" in subject:
        maker = import_name("algorithm", subject)
    if isinstance(maker, type) and (complaint := class_complaint(maker)):
        yield Finding("contract", complaint)
        return
    algos = bound(maker)
    for name, check in (CHECKS | {"pool": check_pool} if pool else CHECKS).items():
        complaint = next(filter(None, (complaint_of(check, algo) for algo in algos)), "")
        yield Finding(name, complaint)
        if complaint and name in ("contract", "messages", "runs"):
            return


def bound(subject: Subject) -> list[Method]:
    """The methods to try: one that is bound already as it is, others to several systems."""
    if isinstance(subject, Method) and subject.sys != UNBOUND:
        return [subject]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [build(subject, sys, explicit_steps=True) for sys in SYSTEMS]


def complaint_of(check: Callable[[Method], Iterator[str]], algo: Method) -> str:
    """The first complaint about the algorithm; an error that it raises is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            complaint = next(filter(None, check(algo)), "")
    except Exception as error:
        complaint = f"it raises an error: {reason(error)}"
    if complaint and algo.sys != SOME:
        sys = algo.sys
        return f"{complaint} (with N = {sys.N}, S = {sys.S}, K = {sys.K})"
    return complaint


def reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def check_contract(algo: Method) -> Iterator[str]:
    yield class_complaint(type(algo))
    theta0 = initial_model(torch.float32)
    server, client = algo.server(theta0), algo.client(theta0)
    for role, state in (("server", server), ("client", client)):
        if not is_namedtuple(state):
            yield f"`{role}` returns a {type(state).__name__}; return a NamedTuple, perhaps empty"
    if "theta" not in server._fields or not torch.equal(server.theta, theta0):
        yield "`server(theta0)` does not contain the model; give its state a field `theta` = theta0"
    yield from check_exchanges("opening", algo.opening)
    yield from check_exchanges("round", algo.round)
    if not algo.round():
        yield "`round` returns no exchange; return at least one"


def check_exchanges(role: str, stage: Callable[[], Any]) -> Iterator[str]:
    """A part of the contract: exchanges are what they should be, and declare their messages."""
    try:
        exchanges = stage()
    except TypeError as error:
        if f"{Exchange.__name__}.__new__()" not in str(error):
            raise
        yield f"`{role}` makes an Exchange without its messages; write {EXCHANGE}"
        return
    if not isinstance(exchanges, tuple) or not all(isinstance(e, Exchange) for e in exchanges):
        yield f"`{role}` does not return a tuple of {EXCHANGE}; return one"
    for exchange in exchanges:
        for name, kind in (("Down", exchange.Down), ("Up", exchange.Up)):
            if not (isinstance(kind, type) and hasattr(kind, "_fields")):
                what = getattr(kind, "__name__", f"a {type(kind).__name__}")
                yield (
                    f"`{role}` declares {what} as its {name}; declare a NamedTuple class there: "
                    f"{EXCHANGE}"
                )


def check_runs(algo: Method) -> Iterator[str]:
    """Raises if it cannot be run."""
    run_problem(algo)
    yield ""


def check_states(algo: Method) -> Iterator[str]:
    theta0 = initial_model(torch.float32)
    first = {"up": algo.server(theta0), "work": algo.client(theta0)}
    for state in first.values():
        for name, value in state._asdict().items():
            if type(value) not in (torch.Tensor, int, float):
                yield (
                    f"the field `{name}` of {type(state).__name__} starts as a "
                    f"{type(value).__name__}; start with a vector (0 * theta0), an int or a float"
                )

    def complain(part: Part, result: Any, *given: Any) -> str:
        state, role = state_in(part, result), part.role
        if state is None:
            return ""
        initial = first[role]
        if type(state) is not type(initial):
            return f"`{role}` returns a {type(state).__name__}; return a {type(initial).__name__}"
        for name, now, then in zip(state._fields, state, initial, strict=True):
            if type(now) is not type(then):
                return (
                    f"`{role}` turns the field `{name}` from {type(then).__name__} into "
                    f"{type(now).__name__}; keep its type from the start"
                )
        return ""

    yield from inspect_calls(algo, complain)


def check_precision(algo: Method) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64):

        def complain(part: Part, result: Any, *given: Any, dtype: torch.dtype = dtype) -> str:
            for v in vectors(result):
                if v.dtype != dtype or v.shape != (PROBLEM.d,):
                    return (
                        f"`{part.role}` returns a vector of {v.dtype} and shape {tuple(v.shape)} "
                        f"where the model has {dtype} and length {PROBLEM.d}; make vectors "
                        "from those given"
                    )
            return ""

        yield from inspect_calls(algo, complain, dtype=dtype)


def check_purity(algo: Method) -> Iterator[str]:
    itself = content(vars(algo))
    complaints: list[str] = []

    def call(part: Part, *given: Any) -> Any:
        copy, before = deepcopy(given), content(given)
        role, function, _ = part
        result = function(*given)
        if content(given) != before:
            complaints.append(f"`{role}` changes its arguments; write a = a + b, not a += b")
        elif content(vars(algo)) != itself:
            complaints.append(
                f"`{role}` changes the algorithm; store lasting values in its two states"
            )
        elif content(function(*copy)) != content(result):
            complaints.append(f"`{role}` gives another result when repeated; draw only from F.rng")
        return result

    run_problem(intercepted(algo, call))
    yield from complaints


def check_determinism(algo: Method) -> Iterator[str]:
    runs = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            runs.append(run_problem(deepcopy(algo)))
    if differ(*runs):
        yield "two runs with one seed differ; draw only from F.rng"


def check_messages(algo: Method) -> Iterator[str]:
    def complain(part: Part, result: Any, *given: Any) -> str:
        message = message_in(part, result)
        if message is None:
            return ""
        kind, declared = type(message), part.message
        if not is_namedtuple(message):
            return f"`{part.role}` sends a {kind.__name__}; send a NamedTuple"
        try:
            back = decode(encode(message), kind, like=initial_model(torch.float32))
        except Exception as error:
            return (
                f"`{part.role}` sends a {kind.__name__} that cannot be encoded "
                f"({reason(error)}); its fields must be declared and sent as Vec, int, float or "
                "Compressed"
            )
        if content(back) != content(message):
            return f"`{part.role}` sends a {kind.__name__} that arrives as something else"
        if kind is not declared and declared is not None:
            return (
                f"`{part.role}` sends a {kind.__name__} where the exchange declares "
                f"{declared.__name__}; send what is declared, or declare what is sent"
            )
        return ""

    with suppress(Exception):  # whether it runs at all is the next check
        yield from inspect_calls(algo, complain)


def check_bits(algo: Method) -> Iterator[str]:
    def complain(part: Part, result: Any, *given: Any) -> str:
        message = message_in(part, result)
        if message is None:
            return ""
        for (_, payload), name, value in zip(
            encoded_fields(message), message._fields, message, strict=True
        ):
            if not 0 <= 8 * len(payload) - field_bits(value) <= 7:
                return (
                    f"`{part.role}` sends a field `{name}` of {8 * len(payload)} bits that claims "
                    f"{field_bits(value)}; let its `bits` count what its `to_bytes` returns"
                )
        return ""

    yield from inspect_calls(algo, complain)


def check_bytes(algo: Method) -> Iterator[str]:
    def carry(message: Message) -> Message:
        return decode(encode(message), type(message), like=initial_model(torch.float32))

    def call(part: Part, *given: Any) -> Any:
        result = part.function(*given)
        if part.role == "work":
            state, up = result
            return state, carry(up)
        return carry(result) if part.role == "down" else result

    if differ(run_problem(algo), run_problem(intercepted(algo, call))):
        yield "a run through bytes differs; send all that matters as fields of the messages"


def check_pool(algo: Method) -> Iterator[str]:
    if differ(run_problem(algo), run_problem(algo, fleet_of=partial(Pool, workers=2))):
        yield "a run on worker processes differs; use nothing outside the two states"


def check_order(algo: Method) -> Iterator[str]:
    def call(part: Part, *given: Any) -> Any:
        if part.role == "up":
            server, replies = given
            return part.function(server, [*replies[1:], replies[0]])
        return part.function(*given)

    usual = run_problem(algo, torch.float64)
    rotated = run_problem(intercepted(algo, call), torch.float64)
    for a, b in zip(usual, rotated, strict=True):
        for v, w in zip(vectors(a.server), vectors(b.server), strict=True):
            if not torch.allclose(v, w, rtol=1e-9, atol=1e-12):
                yield "`up` depends on the order of the replies; treat them equally, as `mean` does"


def check_means(algo: Method) -> Iterator[str]:
    """A deployment adds up each client's share of a mean: what its replies change alone."""
    one = with_system(algo, algo.sys._replace(N=1, S=1))
    alone = zip((*algo.opening(), *algo.round()), (*one.opening(), *one.round()), strict=True)
    ups = [(exchange.up, up_of_one.up) for exchange, up_of_one in alone]

    def complain(part: Part, after: Any, *given: Any) -> str:
        up_of_one = next((one_up for up, one_up in ups if up == part.function), None)
        if up_of_one is None:
            return ""
        server, replies = given
        for name in about(algo).means:
            change = torch.as_tensor(
                algo.sys.N * (getattr(after, name) - getattr(server, name)), dtype=torch.float64
            )
            first = one.server(0 * server.theta)
            alone_sum: Any = sum(getattr(up_of_one(first, [reply]), name) for reply in replies)
            total = torch.as_tensor(alone_sum, dtype=torch.float64)
            if not torch.allclose(change, total, rtol=1e-6, atol=1e-9):
                return (
                    f"`up` changes the mean `{name}` by another amount than each reply alone does, "
                    "added up; change it by the mean of the uploads, or take it out of `means`"
                )
        return ""

    yield from inspect_calls(algo, complain, dtype=torch.float64)


def check_sums(algo: Method) -> Iterator[str]:
    """A server that uses sums only does the same with their mean in place of every upload."""
    method = unwrapped(algo)
    if (options := about(method).summed) is None or "examples" in vars(method).values():
        return
    method = replace(method, **options)

    def call(part: Part, *given: Any) -> Any:
        server, replies = given if part.role == "up" else (None, ())
        kinds = str(type(replies[0].up).__annotations__) if replies else ""
        if replies and "Compressed" not in kinds and "Numbers" not in kinds:
            fields = zip(*(reply.up for reply in replies), strict=True)
            up = type(replies[0].up)(*(sum(values) / len(values) for values in fields))
            return part.function(server, [reply._replace(n=1, up=up) for reply in replies])
        return part.function(*given)

    usual = run_problem(method, torch.float64)
    meant = run_problem(intercepted(method, call), torch.float64)
    for a, b in zip(usual, meant, strict=True):
        for v, w in zip(vectors(a.server), vectors(b.server), strict=True):
            if not torch.allclose(v, w, rtol=1e-6, atol=1e-9):
                yield (
                    "`up` uses more of the replies than their mean and number; use no more, or "
                    "take `sums` out of its `about`"
                )


def check_zero_gradients(algo: Method) -> Iterator[str]:
    def complain(part: Part, result: Any, *given: Any) -> str:
        state = state_in(part, result)
        for name, value in state._asdict().items() if state else ():
            if not is_finite(value):
                return (
                    f"if all gradients are zero, `{part.role}` makes `{name}` not finite; "
                    "guard divisions, as tunefree.core.unit does"
                )
        return ""

    yield from inspect_calls(algo, complain, oracle_of=Flat)


def check_resuming(algo: Method) -> Iterator[str]:
    pristine = deepcopy(algo)

    def call(part: Part, *given: Any) -> Any:
        state, *rest = given
        if is_namedtuple(state):
            state = restore(state, arrays(state))
        return part.function(state, *rest)

    if differ(run_problem(algo), run_problem(intercepted(pristine, call, renew=True))):
        yield "a resumed run differs; store all lasting values in the two states"


def check_replies(algo: Method) -> Iterator[str]:
    def complain(part: Part, _: object, *given: Any) -> str:
        if part.role != "up":
            return ""
        server, replies = given
        cases: dict[str, list[Reply]] = {
            "a single reply": replies[:1],
            "late replies": [reply._replace(tau=2) for reply in replies],
        }
        for case, some in cases.items():
            try:
                finite = all(map(is_finite, part.function(server, some)))
            except Exception as error:
                return f"`up` fails with {case} ({reason(error)}); average those that arrived"
            if not finite:
                return (
                    f"`up` turns {case} into a state that is not finite; average those that arrived"
                )
        return ""

    yield from inspect_calls(algo, complain)
    run_problem(algo, opening="zero")


def check_theory(algo: Method) -> Iterator[str]:
    for name, step in about(algo).steps.items():
        for letter in step.depends_on:
            if letter not in (*System._fields, "t"):
                yield f"its step `{name}` depends on {letter}; a step has only N, S, K, T and t"


def check_horizon(algo: Method) -> Iterator[str]:
    """A method without `about` promises nothing."""
    if not unwrapped(algo).about.title or horizon_steps(algo):
        return
    longer = with_system(algo, algo.sys._replace(T=2 * algo.sys.T))
    if differ(run_problem(algo), run_problem(longer)):
        yield "it depends on T, but no step in its `about.steps` does; declare there what does"


CHECKS: dict[str, Callable[[Method], Iterator[str]]] = {
    "contract": check_contract,
    "messages": check_messages,
    "runs": check_runs,
    "states": check_states,
    "precision": check_precision,
    "purity": check_purity,
    "determinism": check_determinism,
    "bits": check_bits,
    "bytes": check_bytes,
    "order": check_order,
    "means": check_means,
    "sums": check_sums,
    "zero gradients": check_zero_gradients,
    "resuming": check_resuming,
    "replies": check_replies,
    "theory": check_theory,
    "horizon": check_horizon,
}
