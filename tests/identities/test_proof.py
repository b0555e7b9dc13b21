"""The lemmas of docs/theory.md on random instances, and its theorem on whole runs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tunefree.core import System, bind
from tunefree.geometry import NEWTON_SCHULZ, TIMES, gain, polar_directions, split, units
from tunefree.methods import PolarFL
from tunefree.testing import quadratic, simulate

Array = NDArray[np.float64]
SHAPES = ((3, 4), (4,), (2, 3))  # of a model of 22 numbers
LOW, HIGH = 0.69, 1.203  # q(s) / s and q(s) for singular values s of Newton-Schulz's five steps
BETWEEN_RANKS = 0.57  # LOW / HIGH, rounded down
STEPS = PolarFL.about.steps


class Pace(NamedTuple):
    gamma: Array
    path: Array
    beta: Array


def pace(sys: System) -> Pace:
    at = [[STEPS[name].at(sys, t) for t in range(sys.T)] for name in ("gamma", "path", "beta")]
    return Pace(*map(np.array, at))


def systems(least: int = 1) -> st.SearchStrategy[System]:
    sizes = st.integers(least, 60).flatmap(lambda N: st.tuples(st.just(N), st.integers(1, N)))
    return st.builds(
        lambda NS, K, T: System(NS[0], NS[1], K, T), sizes, st.integers(1, 200), st.integers(1, 300)
    )


# Lemma 1


def test_singular_values_are_moved_within_bounds() -> None:
    a, b, c = NEWTON_SCHULZ
    assert b * b < 4 * a * c  # so that p(x) / x has no root
    edges = np.linspace(0, 1, 2_000_001)
    low, high = edges[:-1].copy(), edges[1:].copy()
    gains = np.ones_like(low)  # a lower bound of q(s) / s in each interval
    for _ in range(TIMES):
        u, v = low**2, high**2
        least = np.maximum(a + b * v + c * u * u, a - b * b / (4 * c))
        most = np.minimum(a + b * u + c * v * v, a)
        gains, low, high = gains * least, low * least, high * most
        low, high = np.maximum(low, 0), np.minimum(high, HIGH)  # p maps [0, HIGH] into itself
    x = np.linspace(0, HIGH, 100_001)
    p = a * x + b * x**3 + c * x**5
    slope = np.abs(a + 3 * b * x**2 + 5 * c * x**4).max()
    assert p.max() + slope * HIGH / 100_000 < HIGH
    assert gains.min() > LOW


@pytest.mark.parametrize("shape", [(1, 7), (3, 3), (4, 90), (40, 8), (64, 64)])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_a_polar_step_is_aligned_with_what_it_is_made_of(
    shape: tuple[int, int], spread: float
) -> None:
    torch.manual_seed(shape[1])
    U, _, V = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    g = (U * torch.exp(spread * torch.randn(len(V), dtype=torch.float64))) @ V
    step = polar_directions(g.flatten(), (shape,))
    assert torch.linalg.vector_norm(step) == pytest.approx(1)
    cosine = float(step @ g.flatten() / torch.linalg.vector_norm(g))
    assert cosine >= BETWEEN_RANKS / math.sqrt(min(shape))


# Lemmas 2 and 3, on runs


class Run(NamedTuple):
    """A run of PolarFL on noisy quadratic clients, whose constants are known."""

    problem: Any
    sys: System
    x: list[Array]
    g: list[Array]
    h: list[float]
    r: tuple[float, ...]

    def gradient(self, x: Array) -> Array:
        clients = range(self.sys.N)
        mean: Array = np.mean([self.problem.full_grad(i, x) for i in clients], axis=0)
        return mean

    def loss(self, x: Array) -> float:
        zero = np.zeros_like(x)
        return float(np.mean([self.problem.loss(i, x, zero) for i in range(self.sys.N)]))

    def dual(self, g: Array) -> float:
        return gain(torch.from_numpy(g), self.r, SHAPES)

    @property
    def least(self) -> float:
        return self.loss(self.problem.optimum)

    @property
    def smoothness(self) -> float:
        """Λ: of blocks of the clients' matrices, in the units of rows and columns."""
        cuts = np.cumsum([math.prod(shape) for shape in SHAPES])[:-1]
        total = 0.0
        for rows, r in enumerate(self.r):
            per_client = []
            for A in self.problem.A:
                blocks = np.split(np.split(A, cuts, axis=0)[rows], cuts, axis=1)
                norms = [float(np.linalg.norm(block, 2)) for block in blocks]
                per_client.append(sum(n * s for n, s in zip(norms, self.r, strict=True)))
            total += r * max(per_client)
        return total

    @property
    def sigma(self) -> float:
        sizes = [math.prod(shape) for shape in SHAPES]
        return float(
            sum(r * self.problem.noise * n**0.5 for r, n in zip(self.r, sizes, strict=True))
        )


def run(sys: System, noise: float = 0.5, seed: int = 0) -> Run:
    problem = quadratic(N=sys.N, d=22, noise=noise, seed=seed)
    method = bind(PolarFL(first_pass="on"), sys, SHAPES)
    servers = [step.server for step in simulate(method, problem, sys).steps]
    return Run(
        problem,
        sys,
        x=[s.x.numpy() for s in servers],
        g=[s.g.numpy() for s in servers[1:]],
        h=[s.h for s in servers[1:]],
        r=units(servers[0].theta0, SHAPES),
    )


C = BETWEEN_RANKS / math.sqrt(3)  # the largest rank is 3


@pytest.mark.parametrize("seed", range(4))
def test_a_round_gains_as_much_as_its_gradient_and_its_error_allow(seed: int) -> None:
    sys = System(N=8, S=3, K=5, T=60)
    found = run(sys, seed=seed)
    gamma = pace(sys).gamma
    for t in range(sys.T):
        before, after = found.x[t], found.x[t + 1]
        moved = split(torch.from_numpy(after - before), SHAPES)
        eta = max(float(u.norm()) / r for u, r in zip(moved, found.r, strict=True))
        assert gamma[t] / 10 - 1e-12 <= eta <= gamma[t] + 1e-12
        gradient = found.gradient(before)
        error = found.dual(found.g[t] - gradient)
        gained = eta * (C * found.dual(gradient) - 2 * error) - found.smoothness * eta**2 / 2
        assert found.loss(after) <= found.loss(before) - gained + 1e-9


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_memories_are_compared_with_the_same_clients_gradients(noise: float) -> None:
    sys, t = System(N=6, S=2, K=3, T=9), 7
    problem = quadratic(N=6, d=22, noise=noise)

    def after(rounds: int) -> Any:
        method = bind(PolarFL(first_pass="on"), sys._replace(T=rounds), SHAPES)
        return simulate(method, problem, sys._replace(T=rounds))

    before, now = after(t), after(t + 1)
    x, beta = before.server.x.numpy(), pace(sys).beta[t]
    own = [problem.full_grad(i, x) for i in range(6)]
    m = [before.fleet.states[i].c_i.numpy() for i in range(6)]
    m_new = [now.fleet.states[i].c_i.numpy() for i in range(6)]
    e = [m_i - g_i for m_i, g_i in zip(m, own, strict=True)]
    cohort = now.cohorts[-1]
    means = [(m_new[i] - (1 - beta) * m[i]) / beta for i in cohort]  # of K gradients
    rest = np.mean([g - own[i] for g, i in zip(means, cohort, strict=True)], axis=0)
    mean_e = np.mean(e, axis=0)
    sampled = np.mean([e[i] for i in cohort], axis=0)
    page = (1 - beta) * mean_e + beta * (mean_e - sampled) + beta * rest
    np.testing.assert_allclose(now.server.g.numpy() - np.mean(own, axis=0), page, atol=1e-12)
    if not noise:
        steepest = max(np.linalg.norm(A, 2) for A in problem.A)
        far = pace(sys).path[t] * math.hypot(*units(before.server.theta0, SHAPES))
        assert all(
            0 < np.linalg.norm(g - own[i]) <= steepest * far
            for g, i in zip(means, cohort, strict=True)
        )


# Lemma 4


class Bounds(NamedTuple):
    u: Array
    w: Array
    y: Array
    z: Array


def bounds(sys: System, change: float) -> Bounds:
    """u_t, w_t, y_t and z_t, with `change` for Λ_l / r_l."""
    q, found = sys.S / sys.N, [(1.0, 0.0, 0.0, 0.0)]
    for gamma, path, beta in zip(*pace(sys), strict=True):
        u, w, y, z = found[-1]
        found.append(
            (
                math.sqrt((1 - q * beta) * u * u + q * beta * beta),
                (1 - q * beta / 2) * w + (math.sqrt(q) * beta * path + gamma) * change,
                (1 - q * beta / 2) * y + beta * math.sqrt(q / sys.N) * w,
                (1 - q * beta) * z + (q * beta * path + gamma) * change,
            )
        )
    return Bounds(*np.array(found).T)


@pytest.mark.parametrize(
    "sys", [System(20, 2, 5, 120), System(6, 6, 1, 60), System(10, 1, 40, 200)]
)
@pytest.mark.parametrize("change", [0.0, 0.5])
def test_errors_of_memories_stay_within_their_recursions(sys: System, change: float) -> None:
    rng, trials, s = np.random.default_rng(1), 4000, 1.0
    e = s * rng.normal(size=(trials, sys.N))
    said = bounds(sys, change)
    for t, (gamma, path, beta) in enumerate(zip(*pace(sys), strict=True)):
        a, mean = math.sqrt((e**2).mean()), math.sqrt((e.mean(axis=1) ** 2).mean())
        slack = 1 + 4 / math.sqrt(trials)
        assert a <= slack * (s * said.u[t] + said.w[t])
        assert mean <= slack * (2 * s * said.u[t] / math.sqrt(sys.N) + said.y[t] + said.z[t])
        asked = rng.random((trials, sys.N)).argsort(axis=1) < sys.S  # S of N, without replacement
        away = np.sign(e) * path * change  # the worst bias: away from zero
        fresh = (1 - beta) * e + beta * (away + s * rng.normal(size=e.shape))
        e = np.where(asked, fresh, e)
        e += np.sign(e) * gamma * change


# Lemmas 5 and 6


@settings(max_examples=60, deadline=None)
@given(systems())
def test_sums_are_as_on_the_page(sys: System) -> None:
    N, S, K, T = sys
    gamma, path, beta = pace(sys)
    u, w, y, z = (each[:-1] for each in bounds(sys, 1.0))
    q, log, root = S / N, math.log(1 + T / 9), math.sqrt(S * K)
    kappa, phi, slack = max(1, math.sqrt(K / 10)), gamma / (S / N * beta), 1 + 1e-9
    assert (np.diff(phi) <= 0).all()
    assert (np.diff(gamma / beta**1.5) <= 1e-9).all()
    assert (gamma * u).sum() <= slack * root * (log + N / (2 * S))
    changed = (phi * (math.sqrt(q) * beta * path + gamma)).sum()
    assert (gamma * w).sum() <= slack * 2 * changed
    assert changed <= slack * (2 / 3 * kappa * math.sqrt(N * K) + N / S * (2 / 3 * root + log))
    assert (gamma * y).sum() <= slack * 2 / math.sqrt(S) * (gamma * w).sum()
    assert (gamma * z).sum() <= slack * (phi * (q * beta * path + gamma)).sum()
    assert (gamma * path).sum() <= slack * 2 / 3 * kappa * root
    assert (gamma**2 / beta).sum() <= slack * (2 / 3 * root + log)
    assert (gamma * np.sqrt(beta)).sum() <= slack * root * log
    least = 4 * (S * min(K, 10)) ** 0.25 * ((T + 10) ** 0.25 - 10**0.25)
    assert gamma.sum() >= least


def drift(sys: System) -> float:
    """H_T of the page."""
    N, S, K, T = sys
    log, root, kappa = math.log(1 + T / 9), math.sqrt(S * K), max(1, math.sqrt(K / 10))
    changed = N / S * (2 / 3 * root + log)
    memories = 6 / math.sqrt(S) * (2 / 3 * kappa * math.sqrt(N * K) + changed)
    return 4 / 3 * kappa * root + changed + memories


@pytest.mark.parametrize(
    "sys", [System(8, 3, 5, 80), System(8, 8, 1, 80), System(5, 1, 30, 60), System(8, 2, 5, 400)]
)
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_the_theorem_holds_on_whole_runs(sys: System, noise: float) -> None:
    log, gamma = math.log(1 + sys.T / 9), pace(sys).gamma
    gradients, errors = [], []
    for seed in range(3):  # noise and cohorts differ; the bound holds for each problem
        found = run(sys, noise=noise, seed=seed)
        until = next((t for t, h in enumerate(found.h) if h < 1), sys.T)
        here = [found.gradient(x) for x in found.x[:-1]]
        gradients.append(sum(gamma[t] * found.dual(here[t]) for t in range(until)))
        errors.append(sum(gamma[t] * found.dual(found.g[t] - here[t]) for t in range(sys.T)))
        noisy = found.sigma * (4 * log + 1.5 * sys.N / sys.S)
        error = noisy + found.smoothness * drift(sys)
        start = found.loss(found.x[0]) - found.least
        first = found.smoothness / 3 * math.sqrt(sys.S * sys.K)
        assert errors[-1] <= error
        assert gradients[-1] <= 10 / C * (start + first + 2 * error) / 1000
