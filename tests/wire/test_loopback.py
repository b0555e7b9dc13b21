"""Every algorithm through bytes and back: the same run, with the bits counted."""

from __future__ import annotations

import pytest
import torch

from tests.identities.by_hand import CastOracle
from tests.testing.variants import every_algorithm
from tests.wire.loopback import Loopback
from tunefree.core import Algorithm
from tunefree.fleet.serial import Serial
from tunefree.schedule.simulate import simulate as play
from tunefree.testing import quadratic
from tunefree.wire import bits
from tunefree.wire.codec import encode, encoded_fields
from tunefree.wire.message import field_bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@every_algorithm
def test_a_run_over_the_wire_is_the_same_run(algo: Algorithm, dtype: torch.dtype) -> None:
    problem = quadratic(N=algo.sys.N)
    theta0 = torch.from_numpy(problem.theta0).to(dtype)
    plain = Serial(algo, theta0, lambda job: CastOracle(problem, job))
    wired = Loopback(algo, theta0, lambda job: CastOracle(problem, job))
    for a, b in zip(
        play(algo, plain, theta0, problem.seed),
        play(algo, wired, theta0, problem.seed),
        strict=True,
    ):
        assert a.server.theta.numpy().tobytes() == b.server.theta.numpy().tobytes()
        assert a.traffic == b.traffic
    assert len(wired.passed) >= 2 * algo.sys.S * algo.sys.T
    for message, data in wired.passed:
        fields = encoded_fields(message)
        for (_, payload), value in zip(fields, message, strict=True):
            assert 0 <= 8 * len(payload) - field_bits(value) <= 7
        frames = sum(len(frame) for frame, _ in fields)
        assert 0 <= 8 * (len(data) - 4 - frames) - bits(message) <= 7 * len(message)
        assert data == encode(message)
