"""A job, its reply, and what does jobs: a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tunefree.core import Algorithm, Exchange, Message

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


class Done(NamedTuple):
    """A client's reply: to which job, the upload, the samples it holds and those it drew."""

    key: Key
    up: Message
    n: int
    drawn: int
    fault: str = ""  # why it cannot be used, where the fleet could not even read it


class Fleet(Protocol):
    """Where clients run. A client's new state counts only once its reply has been accepted."""

    def work(self, jobs: Sequence[Job]) -> Sequence[Done]:
        """Do the jobs; replies come in any order, and of those that failed to come there is none.

        A reply that comes twice, or to a job of another step, is no concern of the fleet.
        """

    def accept(self, keys: Sequence[Key]) -> None:
        """The server has used the replies to these jobs: their clients' new states now count."""

    def close(self) -> None:
        """End what was started."""


def exchanges(algo: Algorithm, stage: Stage) -> tuple[Exchange, ...]:
    return algo.opening() if stage == "opening" else algo.round()
