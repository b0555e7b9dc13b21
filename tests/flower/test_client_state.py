"""A client's states on its disk: which of the two counts, and what a new one replaces."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("flwr")

import torch

from tunefree.core import Vec
from tunefree.flower.client_state import ClientState


class State(NamedTuple):
    c_i: Vec


def state(value: float) -> State:
    return State(torch.full((3,), value))


FIRST = state(0.0)


def after(states: ClientState, ack: str) -> float | None:
    found = states.after(ack, FIRST)
    return None if found is None else float(found.c_i[0])


def test_the_reply_that_the_server_used_decides_which_state_counts(tmp_path: Path) -> None:
    with closing(ClientState(tmp_path / "run.sqlite")) as states:
        assert after(states, "") == 0.0
        states.propose("", "a", 0, state(1.0))
        assert (after(states, ""), after(states, "a")) == (0.0, 1.0)  # used, or not
        states.propose("a", "b", 1, state(2.0))
        states.propose("a", "c", 2, state(3.0))  # because b was lost
        assert [after(states, key) for key in ("a", "b", "c")] == [1.0, None, 3.0]
        states.propose("c", "d", 3, state(4.0))
    with closing(ClientState(tmp_path / "run.sqlite")) as again:
        assert [after(again, key) for key in ("a", "c", "d")] == [None, 3.0, 4.0]


def test_a_client_that_starts_anew_forgets_both_states(tmp_path: Path) -> None:
    with closing(ClientState(tmp_path / "run.sqlite")) as states:
        states.propose("", "a", 0, state(1.0))
        states.propose("a", "b", 1, state(2.0))
        states.propose("", "b", 1, state(5.0))
        assert [after(states, key) for key in ("a", "b")] == [None, 5.0]
