"""Adaptive clients, FedACG and FedSMOO: where one becomes another, and what holds for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.identities.test_baselines import FULL, PARTIAL, both_systems, same, thetas
from tests.problem import simulate
from tunefree.core import System, bind
from tunefree.methods.fedprox import FedProx
from tunefree.testing import quadratic
from tunefree_evidence.baselines.dog import LocalDoG, ServerDoG
from tunefree_evidence.baselines.fedacg import FedACG
from tunefree_evidence.baselines.fedadamw import FedAdamW
from tunefree_evidence.baselines.feddyn import FedDyn
from tunefree_evidence.baselines.fedsmoo import FedSMOO
from tunefree_evidence.baselines.local_prodigy import LocalProdigy
from tunefree_evidence.baselines.local_schedule_free import LocalScheduleFree

ALONE = System(N=1, S=1, K=1, T=60)


@both_systems
def test_fedacg_that_does_not_look_ahead_is_fedprox(sys: System) -> None:
    ours = thetas(bind(FedACG(eta=0.05, s=0.8, mu=0.3, lam=0.0), sys), sys)
    same(ours, thetas(bind(FedProx(eta=0.05, s=0.8, mu=0.3), sys), sys))


@both_systems
def test_fedsmoo_at_the_point_itself_is_feddyn(sys: System) -> None:
    ours = thetas(bind(FedSMOO(eta=0.05, alpha=0.3, rho=0.0), sys), sys)
    same(ours, thetas(bind(FedDyn(eta=0.05, alpha=0.3), sys), sys))


def test_adamw_that_begins_again_after_every_step_takes_signs() -> None:
    problem = quadratic(N=1)
    theta = problem.theta0
    expected = [theta]
    for t in range(ALONE.T):
        grad = problem.grad(0, theta, problem.draw(problem.noises(0, t)))
        theta = theta - 0.03 * np.sign(grad)
        expected.append(theta)
    algo = bind(FedAdamW(eta=0.03, epsilon=0.0, moments="reset"), ALONE)
    same(simulate(algo, problem).thetas, expected)


def test_the_three_kinds_of_moments_agree_in_the_first_round() -> None:
    aggregated, reset, kept = (
        thetas(bind(FedAdamW(eta=0.03, moments=moments), FULL), FULL)
        for moments in ("aggregated", "reset", "kept")
    )
    np.testing.assert_allclose(aggregated[1], reset[1], rtol=1e-12)
    np.testing.assert_allclose(kept[1], reset[1], rtol=1e-12)
    for a, b in ((aggregated, reset), (kept, reset), (aggregated, kept)):
        assert not np.allclose(a[2], b[2], rtol=1e-4)


def test_local_and_server_dog_are_one_where_a_client_is_alone() -> None:
    np.testing.assert_array_equal(
        thetas(bind(LocalDoG(), ALONE), ALONE), thetas(bind(ServerDoG(), ALONE), ALONE)
    )


@pytest.mark.parametrize(("cls", "K"), [(LocalDoG, 1), (LocalProdigy, 5)])
def test_what_clients_remember_grows_from_a_millionth(cls: Any, K: int) -> None:
    """An estimate that began again in every round would stay there."""
    sys = System(N=4, S=2, K=K, T=300)
    path = thetas(bind(cls(), sys), sys)
    assert np.linalg.norm(path[2] - path[0]) < 1e-2
    assert np.linalg.norm(path[-1] - path[0]) > 1


def test_schedule_free_with_one_step_a_round_is_adam_without_momentum() -> None:
    sys, problem = ALONE, quadratic(N=1)
    theta, v = problem.theta0, np.zeros(problem.d)
    expected = [theta]
    for t in range(sys.T):
        grad = problem.grad(0, theta, problem.draw(problem.noises(0, t)))
        v = 0.999 * v + 0.001 * grad**2
        theta = theta - 0.0025 * (1 - 0.999 ** (t + 1)) ** 0.5 * grad / (np.sqrt(v) + 1e-8)
        expected.append(theta)
    same(thetas(bind(LocalScheduleFree(), sys), sys), expected)


@pytest.mark.parametrize("cls", [LocalDoG, ServerDoG, LocalProdigy, LocalScheduleFree])
def test_the_unit_of_the_loss_hardly_matters_to_the_untuned(cls: Any) -> None:
    """Only through their epsilons."""
    algo = bind(cls(), PARTIAL)
    one, thousand = thetas(algo, scale=1), thetas(algo, scale=1000)
    moved = np.linalg.norm(one[-1] - one[0])
    assert np.linalg.norm(one - thousand, axis=1).max() < 1e-5 * moved
