"""Delay laws, traces, and the errors of a trace that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tunefree.errors import ConfigError
from tunefree.schedule.clock import VirtualClock
from tunefree.schedule.delays import LAWS, Delays, from_spec


def sample(delays: Delays, clients: int = 400, jobs: int = 5) -> np.ndarray:
    return np.array([[delays.duration(7, i, n) for n in range(jobs)] for i in range(clients)])


@pytest.mark.parametrize(("law", "slow"), [("mild", (5, 8)), ("large", (50, 80))])
def test_speed_classes(law: str, slow: tuple[float, float]) -> None:
    seconds = sample(LAWS[law])
    shares = []
    for low, high in [(1, 2), (3, 5), slow]:
        inside = (seconds >= low) & (seconds <= high)
        assert (inside.all(1) == inside.any(1)).all()  # a client keeps its class
        shares.append(inside.all(1).mean())
        own = seconds[inside.all(1)]
        assert own.std(axis=1).min() > 0
        assert own.mean() == pytest.approx((low + high) / 2, rel=0.05)
    assert sum(shares) == 1
    # argmax of Dirichlet(3, 2, 1), by simulation of a million draws; of 400 clients +- 0.024
    assert shares == pytest.approx([0.637, 0.284, 0.079], abs=0.05)
    assert LAWS[law].longest == slow[1] >= seconds.max()


def test_half_normal() -> None:
    seconds = sample(LAWS["half-normal"])
    assert seconds.min() > 0
    assert seconds.mean() == pytest.approx((2 / np.pi) ** 0.5, rel=0.04)
    assert (seconds**2).mean() == pytest.approx(1, rel=0.08)
    assert seconds.max() < LAWS["half-normal"].longest


def test_the_same_job_always_takes_the_same() -> None:
    law = LAWS["large"]
    assert law.duration(1, 3, 2) == law.duration(1, 3, 2)
    others = {law.duration(*key) for key in [(1, 3, 2), (2, 3, 2), (1, 4, 2), (1, 3, 3)]}
    assert len(others) == 4


@pytest.mark.parametrize("heading", ["", "client,seconds\n", "client, seconds\n\n"])
def test_a_trace_is_cycled_through(tmp_path: Path, heading: str) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text(heading + "1,2.5\n0, 4\n1,0.5\n")
    trace = from_spec(str(file), N=2)
    assert [trace.duration(9, 1, n) for n in range(4)] == [2.5, 0.5, 2.5, 0.5]
    assert [trace.duration(9, 0, n) for n in range(2)] == [4, 4]
    assert trace.longest == 4
    clock = VirtualClock(trace, seed=0)
    assert [clock.seconds(1), clock.seconds(0), clock.seconds(1)] == [2.5, 4, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n", "has no line for client 1; give every client from 0 to 1 at least one"),
        ("0,1\n1,-3\n", "has '1,-3' in line 2; .*seconds not negative"),
        ("0,1\n1,soon\n", "has '1,soon' in line 2"),
        ("0,1\n1,nan\n", "has '1,nan' in line 2"),
        ("0,1\n1,inf\n", "has '1,inf' in line 2"),
        ("0,1\n2,1\n", "has '2,1' in line 2; a line is `client,seconds`, clients from 0 to 1 "),
        ("0,1\n-1,1\n", "has '-1,1' in line 2"),
        ("0,1\n1.5,1\n", "has '1.5,1' in line 2"),
        ("0,1\n1\n", "has '1' in line 2"),
        ("0,1\n1,2,3\n", "has '1,2,3' in line 2"),
        ("seconds,client\n", "has 'seconds,client' in line 1"),
        ("", "has no line for client 0"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        from_spec(str(file), N=2)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="neither a law of delays nor a readable file; choose from mild, large, "
    ):
        from_spec(str(tmp_path / "none.csv"), N=2)
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="neither a law of delays nor a readable file"):
        from_spec(str(tmp_path / "noise"), N=2)
