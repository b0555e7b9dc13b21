"""DoG on every client of FedAvg, and on a server that is sent gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


class Walk:
    """One DoG: where it began, how far it has been and the sum of its squared gradients."""

    def __init__(self, x_0: Array, r_eps: float) -> None:
        self.x_0, self.far, self.G = x_0, r_eps * (1 + np.linalg.norm(x_0)), 1e-8

    def step(self, x: Array, grad: Array) -> Array:
        self.far = max(self.far, np.linalg.norm(x - self.x_0))
        self.G += np.sum(grad**2)
        stepped: Array = self.far / np.sqrt(self.G) * grad
        return stepped


def local_dog(
    problem: Problem, cohorts: Sequence[Sequence[int]], K: int, r_eps: float = 1e-6
) -> list[Array]:
    x, walks, xs = problem.theta0, dict[int, Walk](), []
    for t, cohort in enumerate(cohorts):
        x_K = []
        for i in cohort:
            rng, x_i, walk = problem.noises(i, t), x, walks.setdefault(i, Walk(x, r_eps))
            for _ in range(K):
                x_i = x_i - walk.step(x_i, problem.grad(i, x_i, problem.draw(rng)))
            x_K.append(x_i)
        x = np.mean(x_K, axis=0)
        xs.append(x)
    return averages(problem.theta0, xs)


def server_dog(
    problem: Problem, cohorts: Sequence[Sequence[int]], K: int, r_eps: float = 1e-6
) -> list[Array]:
    x, walk, xs = problem.theta0, Walk(problem.theta0, r_eps), []
    for t, cohort in enumerate(cohorts):
        grads = []
        for i in cohort:
            rng = problem.noises(i, t)
            grads += [problem.grad(i, x, problem.draw(rng)) for _ in range(K)]
        x = x - walk.step(x, np.mean(grads, axis=0))
        xs.append(x)
    return averages(problem.theta0, xs)


def averages(theta: Array, xs: Sequence[Array]) -> list[Array]:
    """The weight of the newest falls from 1 like 9 / (t + 9)."""
    thetas = [theta]
    for t, x in enumerate(xs):
        w = 9 / (t + 9)
        thetas.append((1 - w) * thetas[-1] + w * x)
    return thetas
