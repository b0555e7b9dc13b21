"""Which fleet `auto` is: decided by numbers, not by other load on the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tunefree.core import System
from tunefree.fleet import choice
from tunefree.fleet.choice import ENOUGH_SECONDS, LEAST_SECONDS, START_SECONDS, pays, shortest

SYS = System(N=50, S=10, K=10, T=400)
GRADIENTS = SYS.T * SYS.S * SYS.K


@pytest.mark.parametrize(
    ("seconds", "workers", "expected"),
    [
        (5.0, 2, False),  # of all gradients together
        (LEAST_SECONDS, 64, False),
        (20.0, 2, False),  # 3 to start, 4 for 4000 jobs, 10 of work: 17 are not much less
        (40.0, 2, True),
        (40.0, 1, False),
        (15.0, 8, True),
        (1e4, 2, True),
    ],
)
def test_a_pool_pays_when_it_saves_a_quarter(seconds: float, workers: int, expected: bool) -> None:
    assert pays(seconds / GRADIENTS, SYS, workers) is expected


def test_more_workers_than_clients_in_a_round_do_not_help() -> None:
    two = SYS._replace(S=2)
    assert pays(18 / (two.T * two.S * two.K), two, 64) == pays(18 / (two.T * two.S * two.K), two, 2)


def test_many_small_jobs_are_not_worth_sending() -> None:
    many = System(N=50, S=10, K=1, T=4000)  # 40 s of work in 40 000 jobs of a millisecond
    assert not pays(1e-3, many, workers=64)
    assert pays(1e-3, many._replace(K=10), workers=64)


def test_the_start_of_its_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pays(40 / GRADIENTS, SYS, 2)
    monkeypatch.setattr(choice, "START_SECONDS", START_SECONDS + 10)
    assert not pays(40 / GRADIENTS, SYS, 2)


def machine(durations: Iterable[float]) -> tuple[Callable[[], None], Callable[[], float]]:
    """Work that takes given times, and the clock that measures it."""
    now, rest = [0.0], iter(durations)

    def work() -> None:
        now[0] += next(rest)

    return work, lambda: now[0]


def test_one_slow_gradient_among_quick_ones_decides_nothing() -> None:
    quick, slow = 1e-4, 0.1
    for place in range(choice.TIMED):
        durations = [slow if i == place else quick for i in range(choice.TIMED)]
        assert shortest(*machine(durations)) == pytest.approx(quick)


def test_a_large_model_is_timed_twice_only() -> None:
    assert shortest(*machine([ENOUGH_SECONDS, 0.9])) == pytest.approx(0.9)
