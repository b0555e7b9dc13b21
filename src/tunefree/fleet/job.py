"""The fleet's contract: jobs, replies, clients' states, and the fleet that does jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tunefree.core import Algorithm, Exchange, Message, Vectors

Stage = Literal["opening", "round"]
Key: TypeAlias = tuple[int, int, int]


class Job(NamedTuple):
    """One client's work in one exchange, and everything that a worker needs for it."""

    client: int
    t: int  # server step of the download; the opening is step -1
    stage: Stage
    exchange: int  # which exchange of that stage
    down: Message

    @property
    def key(self) -> Key:
        """Names the job, its reply and its random stream, wherever and whenever it runs."""
        return (self.client, self.t + 1, self.exchange)

    def __str__(self) -> str:
        return f"exchange {self.exchange} of the {self.stage} at t = {self.t}"


class Done(NamedTuple):
    """A client's reply: its job, the upload, how many samples it has and how many it drew."""

    key: Key
    up: Message
    n: int
    drawn: int
    fault: str = ""  # why it cannot be used, if the fleet could not even read it
    beside: tuple[int, int, int] = (0, 0, 0)  # further messages each way, bits down, bits up


class ClientStates(Protocol):
    """The states of clients: a new one counts once its reply has been accepted."""

    def accept(self, used: Sequence[tuple[Job, Done]]) -> None:
        """The server has used these replies: their clients' new states now count."""

    def new(self) -> Mapping[int, Vectors]:
        """By owner, the accepted states that are not on disk yet."""

    @property
    def full(self) -> bool:
        """Whether these are as many as memory should contain."""

    def written(self) -> None:
        """All of that is on disk now."""


class Fleet(Protocol):
    """Where clients run."""

    @property
    def states(self) -> ClientStates: ...

    def work(self, jobs: Sequence[Job]) -> Sequence[Done]:
        """Do the jobs; returns the replies that arrived, in any order.

        Duplicate replies, or replies to jobs of another step, are handled by the caller.
        """

    def close(self) -> None:
        """Stop everything that was started."""


def exchanges(algo: Algorithm, stage: Stage, t: int) -> tuple[Exchange, ...]:
    """The exchanges of a stage at step t."""
    return algo.at(t).opening() if stage == "opening" else algo.at(t).round()
