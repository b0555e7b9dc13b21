"""Clients' states: a new one counts only once the reply that came with it has been accepted.

With a file to read them back from, memory contains the states that are not in it yet and the most
recent of the rest, up to a limit, however many clients take part.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tunefree.core import Client, Server, Vectors
from tunefree.fleet.job import Done, Job, Key

Stored = Callable[[int], Vectors]  # reads a client's last state back from disk
CACHE = 2**28  # bytes of states' vectors in memory: half on disk too, half to be written


class States:
    """The states of the clients that have taken part; all others have the initial state."""

    def __init__(self, first: Client, stored: Stored | None = None, cache: int = CACHE) -> None:
        self._first, self._stored = first, stored
        self._pending: dict[int, tuple[Key, Client]] = {}
        self._new: dict[int, Client] = {}  # accepted, in memory only
        self._recent: OrderedDict[int, Client] = OrderedDict()  # on disk too
        self._most = max(1, cache // 2 // max(1, size(first)))

    def __getitem__(self, client: int) -> Client:
        """The client's last accepted state."""
        if client in self._new:
            return self._new[client]
        if client in self._recent:
            self._recent.move_to_end(client)
            return self._recent[client]
        vectors = self._stored(client) if self._stored else {}
        return restore(self._first, vectors) if vectors else self._first

    def propose(self, key: Key, state: Client) -> None:
        """Store a state beside the accepted one until its reply is accepted too."""
        self._pending[key[0]] = (key, state)

    def accept(self, used: Sequence[tuple[Job, Done]]) -> None:
        for job, _ in used:
            proposed, state = self._pending.pop(job.client)
            assert proposed == job.key, f"the reply to {job.key} was overtaken by {proposed}"
            self._new[job.client] = state

    def new(self) -> dict[int, Vectors]:
        """Accepted states that are not on disk yet."""
        return {client: arrays(state) for client, state in self._new.items()}

    @property
    def full(self) -> bool:
        """Whether so many are not on disk that they should be written: others are on their way."""
        return len(self._new) > self._most // 2

    def written(self) -> None:
        """All accepted states are on disk now."""
        for client, state in self._new.items():
            self._recent[client] = state
            self._recent.move_to_end(client)
        self._new.clear()
        while len(self._recent) > self._most:
            self._recent.popitem(last=False)


def size(state: Client) -> int:
    """The bytes of a state's vectors, and of those of a state within it."""
    vectors = (v.nbytes for v in state if isinstance(v, Tensor))
    return sum(vectors) + sum(size(v) for v in state if isinstance(v, tuple))


def arrays(state: Server | Client) -> dict[str, NDArray[Any]]:
    """A state's fields as numpy arrays; those of a state within it are `name.field`."""
    found: dict[str, NDArray[Any]] = {}
    for name, value in state._asdict().items():
        if isinstance(value, tuple):
            found |= {f"{name}.{field}": each for field, each in arrays(value).items()}
        else:
            found[name] = value.cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return found


def restore(like: Any, vectors: Mapping[str, NDArray[Any]]) -> Any:
    """A state from its arrays, with types and devices as in `like`."""
    return type(like)(
        **{name: field(value, name, vectors) for name, value in like._asdict().items()}
    )


def field(like: Any, name: str, vectors: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(like, tuple):
        within = {key: v for key, v in vectors.items() if key.startswith(f"{name}.")}
        return restore(like, {key.removeprefix(f"{name}."): v for key, v in within.items()})
    if isinstance(like, Tensor):
        return torch.from_numpy(vectors[name]).to(like)
    return type(like)(vectors[name].item())
