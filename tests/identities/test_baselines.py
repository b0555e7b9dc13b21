"""Baselines: where one becomes another, and what holds at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.problem import simulate
from tunefree.core import System, bind
from tunefree.errors import ConfigError
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.fedavgm import FedAvgM
from tunefree.methods.fednova import FedNova
from tunefree.methods.fedopt import FedAdam, FedYogi
from tunefree.methods.fedprox import FedProx
from tunefree.methods.registry import build
from tunefree.testing import quadratic
from tunefree_evidence.baselines.fedcm import FedCM
from tunefree_evidence.baselines.slowmo import SlowMo

PARTIAL = System(N=7, S=3, K=4, T=25)
FULL = System(N=4, S=4, K=3, T=25)
both_systems = pytest.mark.parametrize("sys", [PARTIAL, FULL], ids=["partial", "full"])


def thetas(algo: Any, sys: System = PARTIAL, **problem: Any) -> Any:
    return np.array(simulate(algo, quadratic(N=sys.N, **problem)).thetas)


def same(a: Any, b: Any) -> None:
    assert not np.allclose(b[0], b[-1], rtol=1e-3)
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@both_systems
def test_what_is_fedavg_without_its_own_idea(sys: System) -> None:
    fedavg = thetas(bind(FedAvg(eta=0.05), sys), sys)
    for algo in (
        bind(FedAvgM(eta=0.05, mu=0.0), sys),
        bind(FedAvgM(eta=0.05, mu=0.0, momentum="nesterov"), sys),
        bind(SlowMo(eta=0.05, mu=0.0), sys),
        bind(FedProx(eta=0.05, mu=0.0), sys),
        bind(FedNova(eta=0.05), sys),
        bind(FedNova(eta=0.05, effective="steps"), sys),
        bind(FedCM(eta=0.05, beta=1.0), sys),
    ):
        same(thetas(algo, sys), fedavg)
    for own in (
        bind(FedAvgM(eta=0.05), sys),
        bind(FedCM(eta=0.05), sys),
        bind(FedProx(eta=0.05, mu=0.5), sys),
    ):
        assert not np.allclose(thetas(own, sys)[-1], fedavg[-1], rtol=1e-3)


@both_systems
def test_fednova_with_equal_work_is_what_its_clients_do(sys: System) -> None:
    """The proximal term alone is FedProx; counted in steps, the server steps K / a further."""
    fedprox = bind(FedProx(eta=0.05, mu=0.8), sys)
    same(thetas(bind(FedNova(eta=0.05, mu=0.8), sys), sys), thetas(fedprox, sys))
    further = sys.K * 0.05 * 0.8 / (1 - (1 - 0.05 * 0.8) ** sys.K)
    assert further > 1.03
    counted = thetas(bind(FedNova(eta=0.05, mu=0.8, effective="steps"), sys), sys)
    expected = thetas(bind(FedProx(eta=0.05, mu=0.8, s=further), sys), sys)
    np.testing.assert_allclose(counted, expected, rtol=1e-5, atol=1e-6)  # a has 32 bits


def test_fednova_takes_momentum_or_the_proximal_term() -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        build("fednova", PARTIAL, {"rho": 0.5, "mu": 0.5})
    with pytest.raises(ConfigError, match="option.rho = 1.0 is out of range"):
        build("fednova", PARTIAL, {"rho": 1.0})


def test_yogi_and_adam_agree_where_the_second_moment_stands_still() -> None:
    sys = PARTIAL
    adam = thetas(bind(FedAdam(eta=0.05, eta_s=0.1, beta2=1.0, epsilon=0.1), sys))
    same(adam, thetas(bind(FedYogi(eta=0.05, eta_s=0.1, beta2=1.0, epsilon=0.1), sys)))
    plain = thetas(
        bind(FedAvgM(eta=0.05, s=0.1 * 0.1 / 0.2, mu=0.9), sys)
    )  # m = v / 10; sqrt(v) + ε
    same(adam, plain)
