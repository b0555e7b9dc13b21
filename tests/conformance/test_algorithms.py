"""What every algorithm must keep to, whoever wrote it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from tests.conformance.variants import SYS, every_algorithm
from tests.identities.by_hand import by_hand
from tests.problem import quadratic
from tunefree.core import Algorithm, Reply, Server
from tunefree.wire import Compressed

PROBLEM = quadratic(N=SYS.N)


def content(value: Any) -> Any:
    """Everything in a value down to the bytes of its vectors; oracles are left out."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.numpy().tobytes())
    if isinstance(value, Compressed):
        return (value.bits, value.value_bits, value.to_bytes(), content(value.dense()))
    if isinstance(value, tuple | list):
        return (type(value).__name__, [content(part) for part in value])
    return value if isinstance(value, int | float | str) else None


def vectors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Compressed):
        return [value.dense()]
    return [v for part in value for v in vectors(part)] if isinstance(value, tuple | list) else []


@every_algorithm
def test_functions_are_pure(algo: Algorithm) -> None:
    """Nothing given is changed, the algorithm neither, and a second call gives the same."""
    itself = repr(algo)

    def watched(function: Any, *given: Any) -> Any:
        copy, before = deepcopy(given), content(given)
        result = function(*given)
        assert content(given) == before
        assert repr(algo) == itself
        assert content(function(*copy)) == content(result)
        return result

    last = list(by_hand(algo, PROBLEM, call=watched))[-1]
    assert last.t == SYS.T - 1
    assert not np.allclose(last.server.theta, PROBLEM.theta0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@every_algorithm
def test_precision_in_is_precision_out(algo: Algorithm, dtype: torch.dtype) -> None:
    def watched(function: Any, *given: Any) -> Any:
        result = function(*given)
        for v in vectors(result):
            assert v.dtype == dtype
            assert v.shape == (PROBLEM.d,)
        return result

    for moment in by_hand(algo, PROBLEM, dtype=dtype, call=watched):
        assert vectors(moment.server)


@every_algorithm
def test_states_have_all_their_fields_from_the_start(algo: Algorithm) -> None:
    theta0 = torch.from_numpy(PROBLEM.theta0)
    server, client = algo.server(theta0), algo.client(theta0)
    assert torch.equal(server.theta, theta0)
    for moment in by_hand(algo, PROBLEM):
        for state, first in [(moment.server, server), *((c, client) for c in moment.clients)]:
            assert type(state) is type(first)
            assert [type(value) for value in state] == [type(value) for value in first]


@every_algorithm
def test_no_gradient_means_no_move(algo: Algorithm) -> None:
    at_optimum = PROBLEM._replace(b=np.tile(PROBLEM.theta0, (SYS.N, 1)), noise=0.0)
    for moment in by_hand(algo, at_optimum):
        for v in vectors((moment.server, moment.clients)):
            assert torch.isfinite(v).all()
        np.testing.assert_array_equal(moment.server.theta, PROBLEM.theta0)


@every_algorithm
def test_order_of_replies_matters_to_rounding_only(algo: Algorithm) -> None:
    def shuffled(t: int, replies: list[Reply]) -> list[Reply]:
        return replies[::-1] if t % 2 else replies[1:] + replies[:1]

    def servers(**meddling: Any) -> list[Server]:
        return [moment.server for moment in by_hand(algo, PROBLEM, **meddling)]

    for ours, theirs in zip(servers(), servers(accept=shuffled), strict=True):
        for a, b in zip(vectors(ours), vectors(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
