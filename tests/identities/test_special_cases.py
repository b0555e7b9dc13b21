"""Where one method becomes another, or something that can be written down in a few lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.by_hand import CastOracle, by_hand
from tests.problem import simulate
from tunefree.core import System, Vec, bind
from tunefree.fleet.job import Job
from tunefree.methods.padamfed import PAdaMFed
from tunefree.methods.padamfed_vr import PAdaMFedVR
from tunefree.methods.parfrefl import ParFreFL
from tunefree.methods.scaffold import Scaffold
from tunefree.testing import Array, Problem, quadratic
from tunefree_evidence.baselines.scaffold_m import ScaffoldM
from tunefree_evidence.baselines.scaffold_m_vr import ScaffoldMVR
from tunefree_evidence.baselines.scaffold_norm import ScaffoldNorm

PARTIAL = System(N=7, S=3, K=4, T=25)
FULL = System(N=4, S=4, K=3, T=25)


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_padamfed_without_momentum_is_normalised_scaffold() -> None:
    problem = quadratic(N=PARTIAL.N)
    ours = simulate(bind(PAdaMFed(eta=0.03, gamma=0.2, beta=1.0), PARTIAL), problem)
    same(ours.thetas, simulate(bind(ScaffoldNorm(eta=0.03, gamma=0.2), PARTIAL), problem).thetas)


@pytest.mark.parametrize("s", [1.0, 0.7])
def test_scaffold_m_without_momentum_is_scaffold(s: float) -> None:
    problem = quadratic(N=PARTIAL.N)
    ours = simulate(bind(ScaffoldM(eta=0.05, beta=1.0, gamma=s * 0.05 * 4), PARTIAL), problem)
    theirs = simulate(
        bind(Scaffold(eta=0.05, s=s, option="II", start="gradients"), PARTIAL), problem
    )
    same(ours.thetas, theirs.thetas)


@pytest.mark.parametrize("cls", [PAdaMFed, ParFreFL])
def test_one_client_with_one_step_is_normalised_sgd_with_momentum(cls: Any) -> None:
    sys, problem = System(N=1, S=1, K=1, T=40), quadratic(N=1)
    theta = problem.theta0
    m = problem.grad(0, theta, problem.draw(problem.noises(0, -1)))
    expected, gamma, beta = [theta], 1 / 40**0.75, 1 / 40**0.5
    for t in range(sys.T):
        grad = problem.grad(0, theta, problem.draw(problem.noises(0, t)))
        m = beta * grad + (1 - beta) * m
        theta = theta - gamma * m / np.linalg.norm(m)
        expected.append(theta)
    same(simulate(bind(cls(), sys), problem).thetas, expected)


class Diary:
    """All gradients of a run, by server step, in order."""

    def __init__(self) -> None:
        self.grads: dict[int, list[Vec]] = {}

    def oracle(self, problem: Problem, job: Job) -> CastOracle:
        written = self.grads.setdefault(job.t, [])

        class Writing(CastOracle):
            def grad(self, theta: Vec, xi: Array) -> Vec:
                written.append(super().grad(theta, xi))
                return written[-1]

        return Writing(problem, job)


@pytest.mark.parametrize(
    "algo",
    [
        bind(PAdaMFed(), FULL),
        bind(ScaffoldNorm(), FULL),
        bind(ScaffoldM(), FULL),
        bind(Scaffold(), FULL),
    ],
    ids=lambda algo: algo.about.title,
)
def test_with_all_clients_c_is_the_mean_gradient_of_the_round(algo: Any) -> None:
    diary = Diary()
    g = None
    for moment in by_hand(algo, quadratic(N=FULL.N), oracle=diary.oracle):
        if moment.t >= 0:
            grad = torch.stack(diary.grads[moment.t]).mean(0)
            same(moment.server.c, grad)
            if g is not None:  # no control variate is left in the momentum
                same(moment.server.g, algo.beta * grad + (1 - algo.beta) * g)
        g = getattr(moment.server, "g", None)


@pytest.mark.parametrize(
    ("algo", "storm"),
    [
        (bind(PAdaMFedVR(), FULL), True),
        (bind(PAdaMFedVR(eta=0.02, gamma=0.1, beta=0.3, momentum="ema"), FULL), False),
        (bind(ScaffoldMVR(), FULL), True),
    ],
    ids=["padamfed_vr-storm", "padamfed_vr-ema", "scaffold_m_vr"],
)
def test_with_all_clients_variance_reduction_has_no_control_variate(algo: Any, storm: bool) -> None:
    diary, beta = Diary(), algo.beta
    g = torch.zeros(0)
    for moment in by_hand(algo, quadratic(N=FULL.N), oracle=diary.oracle):
        if moment.t >= 0:
            both = torch.stack(diary.grads[moment.t])  # at the local model, at the previous model
            grad, grad_prev = both[::2].mean(0), both[1::2].mean(0)
            same(moment.server.c, grad)
            expected = (
                grad + (1 - beta) * (g - grad_prev) if storm else beta * grad + (1 - beta) * g
            )
            same(moment.server.g, expected)
        g = moment.server.g


def test_the_first_storm_step_is_a_momentum_step() -> None:
    sys, problem = System(N=5, S=2, K=1, T=6), quadratic(N=5)
    algo = bind(PAdaMFedVR(eta=0.1, gamma=0.2, beta=0.3), sys)
    opened = next(by_hand(algo, problem))
    (exchange,) = algo.round()
    down = exchange.down(opened.server)
    for i, (c_i,) in enumerate(opened.clients):
        xi = problem.draw(problem.noises(i, 0))
        grad = torch.from_numpy(problem.grad(i, problem.theta0, xi))
        F = CastOracle(problem, Job(i, 0, "round", 0, down))
        _, up = exchange.work(opened.clients[i], down, F)
        same(up.q, 0.3 * grad + down.u - 0.3 * c_i)


@pytest.mark.parametrize(
    ("vr", "plain"),
    [(PAdaMFedVR, PAdaMFed), (ScaffoldMVR, ScaffoldM)],
    ids=["padamfed", "scaffold_m"],
)
def test_variance_reduction_starts_at_the_second_step(vr: Any, plain: Any) -> None:
    sys, problem = System(N=5, S=2, K=1, T=4), quadratic(N=5)
    with_vr = simulate(bind(vr(eta=0.1, gamma=0.2, beta=0.3), sys), problem).thetas
    without = simulate(bind(plain(eta=0.1, gamma=0.2, beta=0.3), sys), problem).thetas
    same(with_vr[:2], without[:2])
    assert not np.allclose(with_vr[2:], without[2:], rtol=1e-3)
