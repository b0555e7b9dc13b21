"""Compressed methods: what they become with the identity, and that no error is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.problem import simulate
from tunefree.core import System, bind
from tunefree.methods.comparfrefl import ComParFreFL
from tunefree.methods.parfrefl import ParFreFL
from tunefree.testing import quadratic
from tunefree.wire import from_spec

PARTIAL = System(N=7, S=3, K=4, T=25)
FULL = System(N=4, S=4, K=3, T=25)
IDENTITY = from_spec("identity")
both_systems = pytest.mark.parametrize("sys", [PARTIAL, FULL], ids=["partial", "full"])


def same(a: Any, b: Any) -> None:
    assert not np.allclose(b[0], b[-1], rtol=1e-3)
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@both_systems
def test_comparfrefl_with_the_identity_is_parfrefl(sys: System) -> None:
    problem, (eta, gamma, beta) = quadratic(N=sys.N), (0.03, 0.2, 0.4)
    ours = simulate(bind(ComParFreFL(eta, gamma, beta, IDENTITY), sys), problem).thetas
    same(ours, simulate(bind(ParFreFL(eta, gamma, beta), sys), problem).thetas)
    squeezed = simulate(
        bind(ComParFreFL(eta, gamma, beta, from_spec("top:0.4")), sys), problem
    ).thetas
    assert not np.allclose(squeezed, ours, rtol=1e-3)
