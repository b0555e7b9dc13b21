"""Local SGD with absolute models, for the pages that change only the server."""

from __future__ import annotations

from tunefree.testing import Array, Problem


def local_sgd(problem: Problem, i: int, t: int, theta: Array, K: int, eta: float) -> Array:
    """theta_i after K steps from theta."""
    rng = problem.noises(i, t)
    theta_i = theta
    for _ in range(K):
        theta_i = theta_i - eta * problem.grad(i, theta_i, problem.draw(rng))
    return theta_i
