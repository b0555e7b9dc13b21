"""Baselines: what they are without their own idea, and what they promise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.by_hand import by_hand
from tests.identities.test_baselines import FULL, PARTIAL, both_systems, same, thetas
from tests.identities.test_invariants import all_arrive, some_are_lost
from tests.problem import simulate
from tunefree.core import Reply, System, bind
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.fedavgm import FedAvgM
from tunefree.methods.local_sgd import Up
from tunefree.schedule.membership import cohort
from tunefree.testing import quadratic
from tunefree_evidence.baselines.delta_sgd import DeltaSGD
from tunefree_evidence.baselines.fafed import FAFED
from tunefree_evidence.baselines.fedams_server import FedAMSServer
from tunefree_evidence.baselines.fedcm import FedCM
from tunefree_evidence.baselines.feddyn import FedDyn
from tunefree_evidence.baselines.fedexp import FedExP, Server
from tunefree_evidence.baselines.fedsps import FedSPS
from tunefree_evidence.baselines.mime import Mime, MimeLite
from tunefree_evidence.baselines.scaffold_m import ScaffoldM
from tunefree_evidence.baselines.slowmo import SlowMo


@both_systems
def test_slowmo_is_fedavgm_while_eta_is_constant(sys: System) -> None:
    same(
        thetas(bind(SlowMo(0.05, 0.8, 0.6), sys), sys),
        thetas(bind(FedAvgM(0.05, 0.8, 0.6), sys), sys),
    )


@pytest.mark.parametrize("s", [1.0, 0.7])
@both_systems
def test_fedcm_is_scaffold_m_without_control_variates(sys: System, s: float) -> None:
    class Frozen(ScaffoldM):
        """All c and c_i stay zero."""

        def local(self, client: Any, down: Any, F: Any) -> Any:
            _, up = super().local(client, down, F)
            return client, up._replace(dc=0 * up.dc)

    frozen = simulate(bind(Frozen(eta=0.05, beta=0.3, s=s), sys), quadratic(N=sys.N), "zero").thetas
    same(thetas(bind(FedCM(eta=0.05, beta=0.3, s=s), sys), sys), frozen)
    real = simulate(
        bind(ScaffoldM(eta=0.05, beta=0.3, s=s), sys), quadratic(N=sys.N), "zero"
    ).thetas
    assert sys == FULL or not np.allclose(real, frozen, rtol=1e-3)


@pytest.mark.parametrize("accept", [all_arrive, some_are_lost])
def test_feddyn_knows_the_mean_of_all_h_i(accept: Any) -> None:
    largest = 0.0
    algo = bind(FedDyn(eta=0.05, alpha=0.2), PARTIAL)
    for moment in by_hand(algo, quadratic(N=PARTIAL.N), accept=accept):
        h_i = torch.stack([client.h_i for client in moment.clients])
        np.testing.assert_allclose(moment.server.h, h_i.mean(0), rtol=1e-10, atol=1e-12)
        largest = max(largest, float(moment.server.h.norm()))
    assert largest > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_feddyn_has_no_bias(seed: int) -> None:
    """FedDyn converges where all h_i are the local gradients and their sum is zero."""
    sys, problem = System(N=5, S=5, K=20, T=200), quadratic(N=5, noise=0.0, seed=seed)
    end = simulate(bind(FedDyn(eta=0.1, alpha=0.5), sys), problem).thetas[-1]
    np.testing.assert_allclose(end, problem.optimum, rtol=1e-5, atol=1e-6)
    stalled = simulate(bind(FedAvg(eta=0.1), sys), problem).thetas[-1]
    assert np.linalg.norm(stalled - problem.optimum) > 0.5


@pytest.mark.parametrize("cls", [Mime, MimeLite])
def test_mime_with_one_exact_step_is_gradient_descent_with_momentum(cls: Any) -> None:
    """K = 1, all clients, no noise: θ = θ - η m_new, m_new = β ∇f(θ) + (1 - β) m."""
    sys, problem = System(N=4, S=4, K=1, T=25), quadratic(N=4, noise=0.0)
    theta, m = problem.theta0, np.zeros(problem.d)
    expected = [theta]
    for _ in range(sys.T):
        grad = np.mean([problem.full_grad(i, theta) for i in range(4)], axis=0)
        m = 0.3 * grad + 0.7 * m
        theta = theta - 0.1 * m
        expected.append(theta)
    same(simulate(bind(cls(eta=0.1, beta=0.3), sys), problem).thetas, expected)


def test_mime_has_no_noise_in_its_first_local_step() -> None:
    """With K = 1 the same ξ cancels: noise changes nothing, unlike in MimeLite."""
    sys = System(N=7, S=3, K=1, T=25)
    calm, noisy = (thetas(bind(Mime(eta=0.05), sys), sys, noise=noise) for noise in (0.0, 2.0))
    same(noisy, calm)
    calm, noisy = (thetas(bind(MimeLite(eta=0.05), sys), sys, noise=noise) for noise in (0.0, 2.0))
    assert not np.allclose(noisy, calm, rtol=1e-3)


def test_fedams_server_never_steps_further_than_its_floor_allows() -> None:
    """At a floor above all v, option 1 is heavy-ball momentum divided by sqrt(ε)."""
    floor = 1e4
    ams = bind(FedAMSServer(eta=0.05, eta_s=10.0, epsilon=floor), PARTIAL)
    same(thetas(ams), thetas(bind(FedAvgM(eta=0.05, s=10.0 * 0.1 / floor**0.5, mu=0.9), PARTIAL)))


def test_polyak_steps_that_are_never_reached_are_fedavgs() -> None:
    fedavg = thetas(bind(FedAvg(eta=0.05), PARTIAL))
    same(thetas(bind(FedSPS(c=1e-9, eta_b=0.05, l_star=-50.0), PARTIAL)), fedavg)
    assert not np.allclose(thetas(bind(FedSPS(c=5.0, eta_b=0.05), PARTIAL)), fedavg, rtol=1e-3)


def test_decreasing_steps_decrease() -> None:
    problem, seen = quadratic(N=FULL.N), []

    class Watching(FedSPS):
        def local(self, client: Any, down: Any, F: Any) -> Any:
            new, up = super().local(client, down, F)
            seen.append((client, new))
            return new, up

    simulate(bind(Watching(c=2.0, l_star=-50.0, rule="decreasing"), FULL), problem)
    for old, new in seen:
        assert new.k == old.k + FULL.K
        assert 0 < new.z <= old.z
    assert max(new.k for _, new in seen) == FULL.K * FULL.T


@both_systems
def test_fafed_starts_every_absent_round_with_a_moving_average(sys: System) -> None:
    """S < N: the first step has θ_prev = θ, so K = 1 gives m = β mean g + (1 - β) m."""
    sys = sys._replace(K=1)
    problem = quadratic(N=sys.N)
    for before, after in pairwise(by_hand(bind(FAFED(beta=0.3), sys), problem)):
        present, theta = cohort(problem.seed, after.t, sys), before.server.theta.numpy()
        noise = {i: problem.draw(problem.noises(i, after.t)) for i in present}
        grad = np.mean([problem.grad(i, theta, xi) for i, xi in noise.items()], axis=0)
        average = 0.3 * torch.from_numpy(grad) + 0.7 * before.server.m
        assert torch.allclose(after.server.m, average, rtol=1e-10) == (sys.S < sys.N)


def test_fedexp_with_one_client_a_round_is_fedavg_bit_for_bit() -> None:
    """A displacement alone is half of its own square: η_g = max(1, 1/2)."""
    sys = PARTIAL._replace(S=1)
    ours = thetas(bind(FedExP(eta=0.05, final="last"), sys), sys)
    assert ours.tobytes() == thetas(bind(FedAvg(eta=0.05), sys), sys).tobytes()


def test_fedexp_with_equal_clients_is_fedavg_bit_for_bit() -> None:
    one = quadratic(N=1, noise=0.0)
    alike = one._replace(A=np.tile(one.A, (7, 1, 1)), b=np.tile(one.b, (7, 1)))
    ours = simulate(bind(FedExP(eta=0.05, final="last"), PARTIAL), alike).thetas
    expected = simulate(bind(FedAvg(eta=0.05), PARTIAL), alike).thetas
    assert np.array(ours).tobytes() == np.array(expected).tobytes()


def test_fedexp_returns_the_mean_of_the_last_two_iterates() -> None:
    average, last = (
        thetas(bind(FedExP(eta=0.05, final=end), PARTIAL)) for end in ("average", "last")
    )
    assert not np.allclose(last, thetas(bind(FedAvg(eta=0.05), PARTIAL)), rtol=1e-3)
    same(average[1:], (last[1:] + last[:-1]) / 2)


def extrapolated(deltas: Any, epsilon: float) -> Any:
    """How far FedExP goes, in units of FedAvg's step."""
    theta = torch.zeros(deltas.shape[1], dtype=torch.float64)
    replies = [Reply(i, 1, 0, Up(torch.from_numpy(delta))) for i, delta in enumerate(deltas)]
    moved = bind(FedExP(epsilon=epsilon), PARTIAL).aggregate(Server(theta, theta), replies).w
    return -moved.numpy() @ deltas.mean(0) / (deltas.mean(0) @ deltas.mean(0))


def test_delta_sgd_with_steps_that_never_change_is_fedavg() -> None:
    fedavg = thetas(bind(FedAvg(eta=0.05), PARTIAL))
    for batches in ("same", "own"):
        same(thetas(bind(DeltaSGD(1e9, 0.0, 0.05, batches), PARTIAL)), fedavg)
    assert not np.allclose(thetas(bind(DeltaSGD(eta_0=0.05), PARTIAL)), fedavg, rtol=1e-3)


def test_delta_sgd_with_one_local_step_is_fedavg_bit_for_bit() -> None:
    """There is nothing to compare: it stays at η_0."""
    sys = PARTIAL._replace(K=1)
    assert (
        thetas(bind(DeltaSGD(), sys), sys).tobytes()
        == thetas(bind(FedAvg(eta=0.2), sys), sys).tobytes()
    )


def test_delta_sgd_finds_the_curvature_in_one_step() -> None:
    """A_i = 40 I, no noise: the second step has η = 1 / 40 and ends in b_i, whatever η_0 did."""
    sys = System(N=7, S=3, K=2, T=5)
    problem = quadratic(N=sys.N, noise=0.0)._replace(A=np.tile(40 * np.eye(5), (7, 1, 1)))
    trace = simulate(bind(DeltaSGD(), sys), problem)
    for present, theta in zip(trace.cohorts, trace.thetas[1:], strict=True):
        np.testing.assert_allclose(theta, problem.b[list(present)].mean(0), rtol=1e-10)


def test_noise_is_no_curvature_to_delta_sgd_unless_batches_differ() -> None:
    """A_i = 40 I: on the same batch it cancels out; on two it shortens the step."""
    sys = System(N=1, S=1, K=2, T=1)
    problem = quadratic(N=1, noise=5.0)._replace(A=40 * np.eye(5)[None])
    rng = problem.noises(0, 0)
    _, xi = problem.draw(rng), problem.draw(rng)
    ends = {
        b: simulate(bind(DeltaSGD(batches=b), sys), problem).thetas[-1] for b in ("same", "own")
    }
    np.testing.assert_allclose(ends["same"], problem.b[0] - xi / 40, rtol=1e-10)
    assert not np.allclose(ends["own"], ends["same"], rtol=1e-3)


@pytest.mark.parametrize("batches", ["same", "own"])
def test_the_first_step_of_delta_sgd_has_the_unit_of_one_over_the_loss(batches: Any) -> None:
    one = thetas(bind(DeltaSGD(batches=batches), PARTIAL))
    same(thetas(bind(DeltaSGD(eta_0=0.2e-3, batches=batches), PARTIAL), scale=1000), one)
    assert not np.allclose(
        thetas(bind(DeltaSGD(batches=batches), PARTIAL), scale=0.01), one, rtol=1e-3
    )


def test_fedexp_is_fedavg_in_the_unit_of_the_loss() -> None:
    same(
        thetas(bind(FedExP(eta=5e-5), PARTIAL), scale=1000), thetas(bind(FedExP(eta=0.05), PARTIAL))
    )


def test_fedexp_goes_half_of_s_times_as_far_where_clients_have_nothing_in_common() -> None:
    for S in (2, 3, 6):
        assert extrapolated(0.7 * np.eye(S, 8), epsilon=0.0) == pytest.approx(max(1, S / 2))
    assert extrapolated(0.7 * np.eye(6, 8), epsilon=1.0) == 1.0


def test_the_epsilon_of_fedexp_has_the_unit_of_a_model_squared() -> None:
    deltas, unit = np.eye(6, 8), 1e-2
    assert extrapolated(unit * deltas, 0.0) == pytest.approx(extrapolated(deltas, 0.0))
    assert extrapolated(unit * deltas, 0.01) < 0.5 * extrapolated(deltas, 0.01)
    assert extrapolated(unit * deltas, 0.01 * unit**2) == pytest.approx(extrapolated(deltas, 0.01))
