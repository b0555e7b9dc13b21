"""A serial fleet behind a wire: every message goes through bytes in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tunefree.core import Algorithm, Message, Oracle, Vec
from tunefree.fleet.job import Done, Job
from tunefree.fleet.serial import Serial
from tunefree.fleet.states import States
from tunefree.wire import decode, encode


class Loopback:
    """Stores every message, with its bytes."""

    def __init__(self, algo: Algorithm, theta0: Vec, oracle_of: Callable[[Job], Oracle]) -> None:
        self._serial, self._like = Serial(algo, theta0, oracle_of), theta0
        self.passed: list[tuple[Message, bytes]] = []

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        received = [job._replace(down=self._carry(job.down, None)) for job in jobs]
        done = self._serial.work(received)
        return [
            result._replace(up=self._carry(result.up, job.client))
            for job, result in zip(jobs, done, strict=True)
        ]

    @property
    def states(self) -> States:
        return self._serial.states

    def close(self) -> None:
        """Nothing to stop."""

    def _carry(self, message: Message, client: int | None) -> Message:
        data = encode(message)
        self.passed.append((message, data))
        return decode(data, type(message), like=self._like, client=client)
