"""The contract: what a method may see, and what it must provide.

A vector is a flat tensor of length d. States and messages are NamedTuples of vectors and scalars.
A method is a frozen value of what its user chose, with pure functions; it never sees a clock, a
file or an engine. The engine binds it to N, S, K and T.
"""

from __future__ import annotations

import inspect
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import repeat
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = [
    "OPEN",
    "About",
    "Client",
    "Exchange",
    "Generator",
    "Message",
    "Method",
    "NoState",
    "Numbers",
    "OpeningDown",
    "Oracle",
    "Replies",
    "Reply",
    "Server",
    "Shapes",
    "Step",
    "System",
    "Vec",
    "bind",
    "gradient_opening",
    "mean",
    "norm",
    "stream",
    "unit",
]

Vec: TypeAlias = torch.Tensor
Generator: TypeAlias = np.random.Generator
Vectors: TypeAlias = Mapping[str, NDArray[Any]]  # the fields of a state, as they are stored
Numbers: TypeAlias = tuple[float, ...]  # a few numbers, such as one per tensor of a model
Shapes: TypeAlias = tuple[tuple[int, ...], ...] | None  # of a model's tensors, in order
Server: TypeAlias = Any  # a NamedTuple with at least .theta
Client: TypeAlias = Any  # a NamedTuple, may be empty
Message: TypeAlias = Any  # a NamedTuple of vectors and scalars
Xi: TypeAlias = Any  # one sample or mini-batch, reusable

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function among a user's settings
OPEN: Any = None  # the default of a step that follows from its formula, unless it is given


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


UNBOUND = System(0, 0, 0, 0)


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


Replies: TypeAlias = Sequence[Reply]


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
    up: Callable[[Server, Replies], Server]


@dataclass(frozen=True)
class Step:
    """A step that is not tuned: its formula in N, S, K, T and the round t, as text and as code.

    Args:
        formula: As the page prints it.
        value: The same as a function; it depends on what its arguments are called.

    >>> eta = Step("1 / (K sqrt(T))", lambda K, T: 1 / (K * T**0.5))
    >>> eta.depends_on, eta.at(System(N=50, S=10, K=10, T=400))
    (('K', 'T'), 0.005)
    """

    formula: str
    value: Callable[..., float]

    @cached_property
    def depends_on(self) -> tuple[str, ...]:
        """Those of N, S, K, T and t that it uses."""
        return tuple(inspect.signature(self.value).parameters)

    def at(self, sys: System, t: int = 0) -> float:
        """Its value in round t."""
        known = {**sys._asdict(), "t": t}
        return self.value(**{letter: known[letter] for letter in self.depends_on})


class About(NamedTuple):
    """A method's description of itself, beside its mathematics.

    Attributes:
        title: The name as the paper prints it.
        family: What kind of method it is, in a few words.
        paper: Who, where and when.
        steps: Each step that is not tuned, and its formula.
        grid: Each parameter that is tuned, and the values to search.
        bounds: The largest norm that a field of an upload can have.
        means: A server's field that is the mean of a field of all N clients.
        sums: The options with which its server uses uploads only through their mean and number, as
            secure sums need; None if it never does. {} follows from `weights` = "mean".
        weights: How clients can be weighted: "mean" if its server only averages uploads, "own" if
            its `up` takes the weights as a third argument.
        steady: Whether an honest upload has a size like those before it, so that one that is much
            larger can be refused.

    >>> about = About("Clipped FedAvg", "averaging, clipped", "us", grid={"eta": (0.01, 0.1)})
    >>> about.title, list(about.grid), about.constant
    ('Clipped FedAvg', ['eta'], False)
    """

    title: str = ""
    family: str = ""
    paper: str = ""
    steps: Mapping[str, Step] = {}
    grid: Mapping[str, tuple[float | str, ...]] = {}
    bounds: Mapping[str, float] = {}
    means: Mapping[str, str] = {}
    sums: Mapping[str, Any] | None = None
    weights: Literal["", "mean", "own"] = ""
    steady: bool = True

    @property
    def summed(self) -> Mapping[str, Any] | None:
        """`sums`, which need not be said where uploads are only averaged."""
        return {} if self.sums is None and self.weights == "mean" else self.sums

    @property
    def constant(self) -> bool:
        """Whether its steps are numbers of its paper, the same for every N, S, K and T."""
        return bool(self.steps) and not any(step.depends_on for step in self.steps.values())

    @property
    def origin(self) -> str:
        """Where the steps of a tuning-free method come from."""
        if self.constant:
            return "are constants of its paper"
        known = any("T" in step.depends_on for step in self.steps.values())
        return "follow from N, S, K and T" if known else "follow from S, K and the round"


class NoState(NamedTuple):
    """The state of a client that remembers nothing."""


@dataclass(frozen=True)
class Method(ABC):
    """A federated method: a frozen dataclass of its hyper-parameters, with pure functions.

    A method has `server` and `round`; everything else has a default that most methods keep.
    A tuning-free method has the formulas of its steps in `about`.

    Attributes:
        about: What it says about itself.
        sys: N, S, K and T, which the engine adds when a run starts.
        shapes: Of the model's tensors, which the engine adds too.

    >>> from tunefree.methods import FedAvg
    >>> FedAvg(eta=0.3)
    FedAvg(eta=0.3, s=1.0, weighting='uniform')
    >>> bind(FedAvg(eta=0.3), System(N=5, S=2, K=3, T=10)).sys.K
    3
    """

    sys: System = field(default=UNBOUND, kw_only=True, repr=False)
    shapes: Shapes = field(default=None, kw_only=True, repr=False)

    about: ClassVar[About] = About()

    @abstractmethod
    def server(self, theta0: Vec) -> Server:
        """The server's state before the opening, all fields present."""

    def client(self, theta0: Vec) -> Client:
        """A client's state before the opening, all fields present."""
        return NoState()

    def opening(self) -> tuple[Exchange, ...]:
        """Exchanges that all N clients run once, first: the papers' "Require" line."""
        return ()

    @abstractmethod
    def round(self) -> tuple[Exchange, ...]:
        """The exchanges of one server step, usually one."""

    def at(self, t: int) -> Method:
        """The method as it is in round t, if it changes without its state."""
        return self

    def for_steps(self, down: Message, K_i: int) -> Message:
        """The download for a client of K_i steps, if it contains steps of 1 / K."""
        return down

    def with_share(self, s: Server, client: int, before: Share, after: Share, N: int) -> Server:
        """The server, which had N clients, once this client's share in its means has changed."""
        names = self.about.means
        changed = {c: (N * getattr(s, c) - before[c] + after[c]) / self.sys.N for c in names}
        return s._replace(**changed)

    @property
    def tensors(self) -> Shapes:
        """The tensors whose initial norms are the units of its steps."""
        return None


Share: TypeAlias = Mapping[str, Any]  # by how much a client raises N times each of the means
Algorithm: TypeAlias = Method  # one that is bound to N, S, K and T
M = TypeVar("M", bound=Method)


@dataclass(frozen=True)
class Wrapper(Method):
    """A method that is played in another way, which `words` names."""

    inner: Method

    words: ClassVar[str]
    formulas: ClassVar[Mapping[str, str]] = {}  # of what depends on T in that way

    def at(self, t: int) -> Method:
        return replace(self, inner=self.inner.at(t))

    def server(self, theta0: Vec) -> Server:
        return self.inner.server(theta0)

    def client(self, theta0: Vec) -> Client:
        return self.inner.client(theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return tuple(map(self.played, self.inner.opening()))

    def round(self) -> tuple[Exchange, ...]:
        return tuple(map(self.played, self.inner.round()))

    def played(self, exchange: Exchange) -> Exchange:
        """An exchange of the method as it is played."""
        return exchange

    def for_steps(self, down: Message, K_i: int) -> Message:
        return self.inner.for_steps(down, K_i)

    def with_share(self, s: Server, client: int, before: Share, after: Share, N: int) -> Server:
        if "inner" not in s._fields:
            return self.inner.with_share(s, client, before, after, N)
        return s._replace(inner=self.inner.with_share(s.inner, client, before, after, N))


def own(s: Server) -> Server:
    """The method's own server, however it is played."""
    return own(s.inner) if "inner" in s._fields else s


def share(algo: Method, up: Callable[[Server, Replies], Server], theta0: Vec, r: Reply) -> Share:
    """By how much a reply changes N times each of the means: as the server of one client's would.

    `algo` and `up` are the method of one client and its aggregation. That is right if the means are
    linear in the uploads, which `tunefree check` tests.
    """
    means = about(algo).means
    s = own(up(algo.server(0 * theta0), [r])) if means else None
    return {c: getattr(s, c) for c in means}


def alone(algo: Method) -> Method:
    """The method itself, for one client."""
    method = unwrapped(algo)
    return with_system(method, method.sys._replace(N=1, S=1))


def bind(method: M, sys: System, shapes: Shapes = None) -> M:
    """The method for N, S, K and T and a model's tensors; open steps follow from their formulas.

    Args:
        method: What a user chose.
        sys: The system constants.
        shapes: Of the model's tensors, which a compressor takes one by one.

    >>> from tunefree.methods import PAdaMFed
    >>> bind(PAdaMFed(), System(N=50, S=10, K=10, T=400)).eta
    0.005
    """
    if isinstance(method, Wrapper):
        return replace(method, sys=sys, inner=bind(method.inner, sys, shapes))
    given, steps = options(method), method.about.steps
    known = {name: steps[name].at(sys) for name in steps if given.get(name, 0) is OPEN}
    if shapes is not None and (C := given.get("C")):
        known["C"] = C.over([prod(shape) for shape in shapes])
    return replace(method, sys=sys, shapes=shapes, **known)


def with_system(algo: M, sys: System) -> M:
    """The same step sizes with other constants."""
    if isinstance(algo, Wrapper):
        return replace(algo, sys=sys, inner=with_system(algo.inner, sys))
    return replace(algo, sys=sys)


def unwrapped(algo: Method) -> Method:
    """The method itself, however it is played."""
    return unwrapped(algo.inner) if isinstance(algo, Wrapper) else algo


def about(method: Method | type[Method]) -> About:
    """What a method says about itself; its title is the name of its class if it has no other."""
    if isinstance(method, Wrapper):
        said = about(method.inner)
        return said._replace(title=f"{said.title}, {method.words}")
    cls = method if isinstance(method, type) else type(method)
    return cls.about if cls.about.title else cls.about._replace(title=cls.__name__)


def options(method: Method) -> dict[str, Any]:
    """What its user can choose, by name."""
    return {f.name: getattr(method, f.name) for f in fields(method) if is_option(f.name)}


def is_option(name: str) -> bool:
    """Whether a field of a method is for its user, not for the engine."""
    return name not in ("sys", "shapes", "sigma")


def numbers(algo: Method) -> dict[str, Any]:
    """Its steps, one that changes as it is in round 0, and its options."""
    method = unwrapped(algo)
    steps = {name: step.at(method.sys) for name, step in method.about.steps.items()}
    return steps | options(method)


def step_sizes(algo: Method) -> dict[str, float]:
    """Those of them that are numbers with a fraction: the steps, and what scales them."""
    return {name: value for name, value in numbers(algo).items() if isinstance(value, float)}


def horizon_steps(algo: Method) -> dict[str, str]:
    """The steps that depend on T, the number of rounds, each with its formula.

    A step that was given by hand does not depend on T, whatever its formula is.
    """
    if isinstance(algo, Wrapper):
        return {**horizon_steps(algo.inner), **algo.formulas}
    given = options(algo)
    return {
        name: step.formula
        for name, step in algo.about.steps.items()
        if "T" in step.depends_on and given.get(name) in (OPEN, step.at(algo.sys))
    }


def as_data(value: object) -> Any:
    """A method or another value as JSON data, the same in every process.

    >>> from tunefree.methods import FedProx
    >>> as_data(FedProx(eta=0.3))
    {'FedProx': {'sys': [0, 0, 0, 0], 'shapes': None, 'eta': 0.3, 's': 1.0, 'mu': 0.01}}
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): as_data(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: as_data(getattr(value, f.name)) for f in fields(value)}
        return {type(value).__qualname__: parts}
    return str(value.__qualname__) if hasattr(value, "__qualname__") else text_of(value)


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

    def up(s: Server, replies: Replies) -> Server:
        return server(s, len(replies) / sys.N * mean(r.up.grad for r in replies))

    return Exchange(OpeningDown, OpeningUp, lambda s: OpeningDown(s.theta), work, up)


def stream(seed: int, purpose: str, *key: int) -> Generator:
    """A random stream that depends on its name only, never on what ran before.

    >>> bool(stream(7, "cohort", 3).random() == stream(7, "cohort", 3).random())
    True
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *key])
