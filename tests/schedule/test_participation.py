"""Who was heard how late."""

from __future__ import annotations

from tests.problem import quadratic, simulate_buffered
from tunefree.algorithms.padamfed import PAdaMFed
from tunefree.core import System
from tunefree.schedule.participation import participation
from tunefree.schedule.trip import Step


def test_replies_are_counted_and_the_opening_is_not() -> None:
    steps = [
        Step(-1, None, range(4), (), 0, staleness=(0,) * 4),
        Step(0, None, [0, 1], (), 0, staleness=(0, 0)),
        Step(1, None, [1, 3], (), 0, staleness=(1, 0)),
        Step(2, None, [1, 3], (), 0, staleness=(0, 2)),
    ]
    assert participation(steps, N=4) == (0.5, 2, {0: 4, 1: 1, 2: 1}, 0, 3)
    assert list(participation(steps, N=4).staleness_histogram) == [0, 1, 2]
    assert participation([], N=4) == (0, 0, {}, 0, 0)


def test_a_run_is_summed_up() -> None:
    sys = System(N=9, S=3, K=2, T=25)
    steps = simulate_buffered(PAdaMFed.theory(sys), quadratic(N=9), 7).steps
    result = participation((step._replace(server=None) for step in steps), N=9)
    assert sum(result.staleness_histogram.values()) == 75
    assert 0 < result.staleness_mean < result.staleness_max
    assert result.uploads_min <= 75 / 9 <= result.uploads_max
