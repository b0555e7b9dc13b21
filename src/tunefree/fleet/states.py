"""Clients' states: a new one counts only once the reply that came with it has been accepted."""

from __future__ import annotations

from collections.abc import Sequence

from tunefree.core import Algorithm, Client, Vec


class States:
    """The states of the clients that have taken part; all others are as at the beginning."""

    def __init__(self, algo: Algorithm, theta0: Vec) -> None:
        self._first = algo.client(theta0)
        self._accepted: dict[int, Client] = {}
        self._pending: dict[int, Client] = {}

    def __getitem__(self, client: int) -> Client:
        """The client's last accepted state."""
        return self._accepted.get(client, self._first)

    def propose(self, client: int, state: Client) -> None:
        """Keep a state beside the accepted one until its reply is accepted too."""
        self._pending[client] = state

    def accept(self, clients: Sequence[int]) -> None:
        for client in clients:
            self._accepted[client] = self._pending.pop(client)
