"""What holds at every step of every run: c = mean of c_i, bounded moves, no unit of loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.identities.by_hand import by_hand
from tests.problem import simulate
from tunefree.core import Reply, System, stream
from tunefree.methods.registry import build
from tunefree.testing import quadratic

SYS = System(N=7, S=4, K=3, T=25)
STORM: dict[str, object] = {"momentum": "storm"}
EMA: dict[str, object] = {"momentum": "ema"}
CONTROL_VARIATES: list[tuple[str, dict[str, object]]] = [
    ("polarfl", {}),
    ("polarfl", {"first_pass": "on"}),
    ("polarfl", {"compressor": "top:0.3"}),
    ("polarfl", {"compressor": "any:rand:0.5|identity", "first_pass": "on"}),
    ("padamfed", {}),
    ("padamfed_vr", STORM),
    ("padamfed_vr", EMA),
    ("parfrefl", {}),
    ("scaffold", {"option": "I"}),
    ("scaffold", {"option": "II"}),
    ("scaffold", {"option": "II", "start": "gradients"}),
    ("scaffold_m", {}),
    ("scaffold_m_vr", {}),
    ("scaffold_norm", {}),
    ("comparfrefl", {"compressor": "top:0.3"}),
    ("comparfrefl", {"compressor": "sign"}),
    ("comparfrefl", {"compressor": "any:rand:0.5|identity"}),
    ("scafcom", {"start": "zero"}),
    ("scafcom", {"start": "gradients"}),
    ("scafcom", {"compressor": "qsgd-contractive:3"}),
    ("scallion", {"compressor": "rand-unbiased:0.5"}),
    ("scallion", {"compressor": "qsgd:4"}),
    ("adamasfl", {}),
    ("masfl", {"eta": 0.02, "gamma": 0.1}),
]


def name_of(value: object) -> str:
    return value if isinstance(value, str) else "-".join(map(str, dict(value).values()))  # type: ignore[call-overload]


def all_arrive(t: int, replies: list[Reply]) -> list[Reply]:
    return replies


def some_are_lost(t: int, replies: list[Reply]) -> list[Reply]:
    """About half of the replies, at least one, in the opening too."""
    kept = [reply for reply in replies if stream(5, "lost", t + 1, reply.client).random() < 0.5]
    return kept or replies[:1]


@pytest.mark.parametrize("accept", [all_arrive, some_are_lost])
@pytest.mark.parametrize(("name", "options"), CONTROL_VARIATES, ids=name_of)
def test_c_is_the_mean_of_all_c_i(name: str, options: dict[str, object], accept: Any) -> None:
    moved = False
    for moment in by_hand(build(name, SYS, options), quadratic(N=SYS.N), accept=accept):
        c_i = torch.stack([client[0] for client in moment.clients])
        np.testing.assert_allclose(moment.server.c, c_i.mean(0), rtol=1e-10, atol=1e-12)
        moved = moved or bool(moment.server.c.norm() > 0.1)
    assert moved


@pytest.mark.parametrize(("name", "options"), CONTROL_VARIATES, ids=name_of)
def test_means_are_declared_by_their_fields(name: str, options: dict[str, object]) -> None:
    algo: Any = build(name, SYS, options)
    server, client = algo.server(torch.ones(5)), algo.client(torch.ones(5))
    ((field, of_clients),) = algo.about.means.items()
    assert field in server._fields
    assert of_clients == client._fields[0]


@pytest.mark.parametrize(
    ("name", "options"),
    [("padamfed", {}), ("padamfed_vr", STORM), ("padamfed_vr", EMA), ("scaffold_norm", {})],
    ids=name_of,
)
def test_a_step_moves_at_most_gamma(name: str, options: dict[str, object]) -> None:
    algo: Any = build(name, SYS, options)
    thetas = np.array(simulate(algo, quadratic(N=SYS.N)).thetas)
    moves = np.linalg.norm(np.diff(thetas, axis=0), axis=1)
    assert np.all(moves <= algo.gamma * (1 + 1e-12))
    assert np.all(moves > 0.1 * algo.gamma)


@pytest.mark.parametrize("name", ["parfrefl", "comparfrefl"])
def test_a_parfrefl_step_moves_exactly_gamma(name: str) -> None:
    algo: Any = build(name, SYS)
    thetas = np.array(simulate(algo, quadratic(N=SYS.N)).thetas)
    np.testing.assert_allclose(np.linalg.norm(np.diff(thetas, axis=0), axis=1), algo.gamma, 1e-10)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("padamfed", {}),
        ("padamfed_vr", STORM),
        ("padamfed_vr", EMA),
        ("parfrefl", {}),
        ("comparfrefl", {"compressor": "top:0.4"}),
        ("comparfrefl", {"compressor": "sign"}),
        ("polarfl", {}),
        ("polarfl", {"compressor": "top:0.4"}),
    ],
    ids=name_of,
)
def test_the_unit_of_the_loss_does_not_matter(name: str, options: dict[str, object]) -> None:
    algo = build(name, SYS, options)
    one, thousand = (simulate(algo, quadratic(N=SYS.N, scale=scale)).thetas for scale in (1, 1000))
    np.testing.assert_allclose(np.array(one), np.array(thousand), rtol=1e-10, atol=1e-12)


def test_the_unit_of_the_loss_matters_to_fedavg() -> None:
    algo = build("fedavg", SYS, {"eta": 1e-4})
    one, thousand = (simulate(algo, quadratic(N=SYS.N, scale=scale)).thetas for scale in (1, 1000))
    assert np.linalg.norm(one[-1] - thousand[-1]) > 0.1
