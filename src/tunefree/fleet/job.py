"""The fleet's contract: a job, its reply, what is remembered of clients, and who does jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tunefree.core import Algorithm, Exchange, Message, Vectors, at

Stage = Literal["opening", "round"]
Key: TypeAlias = tuple[int, int, int]


class Job(NamedTuple):
    """One client's work in one exchange, and everything a worker needs to know of it."""

    client: int
    t: int  # server step of the download; the opening is step -1
    stage: Stage
    exchange: int  # which exchange of that stage
    down: Message

    @property
    def key(self) -> Key:
        """Names the job, its reply and its random stream, whoever runs it and whenever."""
        return (self.client, self.t + 1, self.exchange)

    def __str__(self) -> str:
        return f"exchange {self.exchange} of the {self.stage} at t = {self.t}"


class Done(NamedTuple):
    """A client's reply: to which job, the upload, the samples it holds and those it drew."""

    key: Key
    up: Message
    n: int
    drawn: int
    fault: str = ""  # why it cannot be used, where the fleet could not even read it


class ClientStates(Protocol):
    """What is remembered of clients: a new state counts once its reply has been accepted."""

    def accept(self, used: Sequence[tuple[Job, Done]]) -> None:
        """The server has used these replies: their clients' new states now count."""

    def new(self) -> Mapping[int, Vectors]:
        """By owner, what was accepted and is on no disk yet."""

    def written(self) -> None:
        """All of that is on disk now."""


class Fleet(Protocol):
    """Where clients run."""

    @property
    def states(self) -> ClientStates: ...

    def work(self, jobs: Sequence[Job]) -> Sequence[Done]:
        """Do the jobs; replies come in any order, and of those that failed to come there is none.

        A reply that comes twice, or to a job of another step, is no concern of the fleet.
        """

    def close(self) -> None:
        """End what was started."""


def exchanges(algo: Algorithm, stage: Stage, t: int) -> tuple[Exchange, ...]:
    """What is played in a stage of step t."""
    return at(algo, t).opening() if stage == "opening" else at(algo, t).round()
