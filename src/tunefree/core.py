"""The contract: what an algorithm may see, and what it must provide.

A vector is a flat tensor of length d. States and messages are NamedTuples of vectors and scalars.
An algorithm is a frozen value with pure functions; it never sees a clock, a file or an engine.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Vec: TypeAlias = torch.Tensor
Generator: TypeAlias = np.random.Generator
Vectors: TypeAlias = Mapping[str, NDArray[Any]]  # the fields of a state, as they are stored
Numbers: TypeAlias = tuple[float, ...]  # a few numbers, such as one per tensor of a model
Server: TypeAlias = Any  # a NamedTuple with at least .theta
Client: TypeAlias = Any  # a NamedTuple, may be empty
Message: TypeAlias = Any  # a NamedTuple of vectors and scalars
Xi: TypeAlias = Any  # one sample or mini-batch, reusable

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function among a user's settings
HORIZON = re.compile(r"(?<![A-Za-z_])T(?![A-Za-z_0-9])")  # in a formula


class System(NamedTuple):
    """The only constants a tuning-free method may use.

    Attributes:
        N: Clients.
        S: Uploads per server step.
        K: Local steps.
        T: Server steps.

    >>> System(N=50, S=10, K=5, T=400)._replace(S=20)
    System(N=50, S=20, K=5, T=400)
    """

    N: int
    S: int
    K: int
    T: int


class Oracle(Protocol):
    """A client's only access to its data; it counts the samples used.

    >>> def local(theta: Vec, F: Oracle, K: int, eta: float) -> Vec:
    ...     for _ in range(K):
    ...         theta = theta - eta * F.grad(theta, F.draw())
    ...     return theta
    """

    @property
    def n(self) -> int:
        """Number of samples."""

    @property
    def rng(self) -> Generator:
        """A stream keyed by (run seed, client, job), never by who ran first."""

    def draw(self) -> Xi:
        """One mini-batch xi ~ D_i, reusable."""

    def grad(self, theta: Vec, xi: Xi) -> Vec:
        """∇F(theta; xi)."""

    def loss_and_grad(self, theta: Vec, xi: Xi) -> tuple[Vec, Vec]:
        """F(theta; xi) and ∇F(theta; xi)."""

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        """(1/K) Σ_k ∇F(theta; xi_k) at one point."""

    def full_grad(self, theta: Vec) -> Vec:
        """∇f_i(theta) over all of its samples."""


class Reply(NamedTuple):
    """One upload as the server receives it.

    Attributes:
        client: Who sent it.
        n: Samples the client has.
        tau: Server steps since its download.
        up: The message.

    >>> replies = [Reply(client=3, n=40, tau=0, up=1.0), Reply(client=5, n=10, tau=2, up=4.0)]
    >>> sum(reply.up for reply in replies) / len(replies)
    2.5
    """

    client: int
    n: int
    tau: int
    up: Message


class Exchange(NamedTuple):
    """One trip over the wire: the server sends, clients work and reply, the server aggregates.

    The two kinds of message are declared, so that a receiver knows what to expect.

    Attributes:
        Down: The NamedTuple that the server sends.
        Up: The NamedTuple that a client sends.
        down: What the server sends: its state -> a `Down`.
        work: What a client does: its state, the `Down` and its oracle -> its new state and an `Up`.
        up: How the server aggregates: its state and the replies -> its new state.

    >>> exchange = gradient_opening(System(N=5, S=2, K=3, T=10), lambda c_i: (c_i,), lambda s, c: s)
    >>> exchange.Down.__name__, exchange.Up._fields
    ('OpeningDown', ('grad',))
    """

    Down: type[Message]
    Up: type[Message]
    down: Callable[[Server], Message]
    work: Callable[[Client, Message, Oracle], tuple[Client, Message]]
    up: Callable[[Server, Sequence[Reply]], Server]


class Algorithm(Protocol):
    """A frozen dataclass: hyper-parameters plus pure functions.

    A tuning-free method also has `theory(sys)`; one that describes itself has `about`.

    >>> from tunefree.methods.registry import build
    >>> algo = build("fedavg", System(N=5, S=2, K=3, T=10), {"eta": 0.1})
    >>> algo.sys.S, len(algo.opening()), len(algo.round())
    (2, 0, 1)
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def sys(self) -> System:
        """N, S, K and T."""

    def server(self, theta0: Vec) -> Server:
        """The server's state before the opening, all fields present."""

    def client(self, theta0: Vec) -> Client:
        """A client's state before the opening, all fields present."""

    def opening(self) -> tuple[Exchange, ...]:
        """Exchanges that all N clients run once, first: the papers' "Require" line."""

    def round(self) -> tuple[Exchange, ...]:
        """The exchanges of one server step, usually one."""


class About(NamedTuple):
    """An algorithm's description of itself, beside its mathematics.

    Attributes:
        title: The name as the paper prints it.
        family: What kind of method it is, in a few words.
        paper: Who, where and when.
        steps: Each step that is not tuned: its formula in N, S, K, T and t.
        grid: Each parameter that is tuned, and the values to search.
        bounds: The largest norm that a field of an upload can have.
        means: A server's field that is the mean of a field of all N clients.
        weights: How clients can be weighted: "mean" if its server only averages uploads, "own" if
            its `up` takes the weights as a third argument.

    >>> about = About("Clipped FedAvg", "averaging, clipped", "us", grid={"eta": (0.01, 0.1)})
    >>> about.title, list(about.grid), about.constant
    ('Clipped FedAvg', ['eta'], False)
    """

    title: str
    family: str
    paper: str
    steps: Mapping[str, str] = {}
    grid: Mapping[str, tuple[float, ...]] = {}
    bounds: Mapping[str, float] = {}
    means: Mapping[str, str] = {}
    weights: Literal["", "mean", "own"] = ""

    @property
    def constant(self) -> bool:
        """Whether its steps are numbers of its paper, the same for every N, S, K and T."""
        formulas = "".join(self.steps.values())
        return bool(self.steps) and not any(letter in formulas for letter in System._fields)

    @property
    def origin(self) -> str:
        """Where the steps of a tuning-free method come from."""
        if self.constant:
            return "are constants of its paper"
        known = any(map(HORIZON.search, self.steps.values()))
        return "follow from N, S, K and T" if known else "follow from S, K and the round"


def about(algo: Algorithm) -> About:
    """The algorithm's `about`; without one, just the name of its class."""
    found: About = getattr(algo, "about", About(type(algo).__name__, "", ""))
    return found


def at(algo: Algorithm, t: int) -> Algorithm:
    """The algorithm as it is in round t: one whose steps change without its state has an `at`."""
    then: Callable[[int], Algorithm] | None = getattr(algo, "at", None)
    return algo if then is None else then(t)


def unwrapped(algo: Algorithm) -> Algorithm:
    """The method itself, without its wrappers (decay, weighting)."""
    inner: Algorithm | None = getattr(algo, "inner", None)
    return algo if inner is None else unwrapped(inner)


def with_system(algo: Algorithm, sys: System) -> Algorithm:
    """The same step sizes with other constants."""
    inner: Algorithm | None = getattr(algo, "inner", None)
    if inner is None:
        return replace(algo, sys=sys)
    return replace(algo, inner=with_system(inner, sys))


def horizon_steps(algo: Algorithm) -> dict[str, str]:
    """The steps whose formula contains T, the number of rounds, each with that formula.

    A step that was given by hand does not depend on T, whatever its formula is.
    """
    if algo is not unwrapped(algo):
        return {**horizon_steps(unwrapped(algo)), **getattr(algo, "formulas", {})}
    formulas = {name: text for name, text in about(algo).steps.items() if HORIZON.search(text)}
    theory = getattr(algo, "theory", None)
    if not formulas or theory is None:
        return formulas
    usual = theory(algo.sys)
    return {
        name: text
        for name, text in formulas.items()
        if getattr(algo, name, None) == getattr(usual, name, None)
    }


def text_of(value: object) -> str:
    """A value's repr, the same in every process."""
    return ADDRESS.sub("", repr(value))


def norm(v: Vec) -> Vec:
    """The Euclidean norm of the whole flat vector.

    Args:
        v: A flat vector.

    >>> norm(torch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    length: Vec = torch.linalg.vector_norm(v)
    return length


def unit(v: Vec) -> Vec:
    """v / ||v||, and zero where v is zero.

    Args:
        v: A flat vector.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    return v / norm(v).clamp_min(1e-12)


def mean(vectors: Iterable[Vec], weights: Iterable[float] | None = None) -> Vec:
    """The average, summed in the order given; with weights, Σ w v / Σ w.

    Args:
        vectors: At least one.
        weights: A number for each.

    >>> mean([torch.tensor([1.0, 5.0]), torch.tensor([3.0, 7.0])])
    tensor([2., 6.])
    """
    total, whole = None, 0.0
    for v, w in zip(vectors, weights or repeat(1.0), strict=weights is not None):
        total = w * v if total is None else total.add_(v, alpha=w)  # in place: vectors may be long
        whole += w
    if total is None:
        raise ValueError("mean of no vectors")
    return total.div_(whole)


class OpeningDown(NamedTuple):
    theta: Vec


class OpeningUp(NamedTuple):
    grad: Vec


def gradient_opening(
    sys: System, client: Callable[[Vec], Client], server: Callable[[Server, Vec], Server]
) -> Exchange:
    """The papers' "Require" line: every client sends the mean of K mini-batch gradients at θ^0.

    `client(c_i)` is the client's state afterwards, `server(s, c)` the server's, with
    c = (1/N) Σ c_i. A client whose reply is lost counts as c_i = 0, which stays its state too.
    """

    def work(_: Client, down: OpeningDown, F: Oracle) -> tuple[Client, OpeningUp]:
        c_i = F.mean_grad(down.theta, sys.K)
        return client(c_i), OpeningUp(c_i)

    def up(s: Server, replies: Sequence[Reply]) -> Server:
        return server(s, len(replies) / sys.N * mean(r.up.grad for r in replies))

    return Exchange(OpeningDown, OpeningUp, lambda s: OpeningDown(s.theta), work, up)


def stream(seed: int, purpose: str, *key: int) -> Generator:
    """A random stream that depends on its name only, never on what ran before.

    >>> bool(stream(7, "cohort", 3).random() == stream(7, "cohort", 3).random())
    True
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *key])
