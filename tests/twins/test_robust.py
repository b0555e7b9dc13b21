"""Robust aggregation: its rules against their pages, in any method that averages, and refused."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.twins.robust import RULES
from tests.variants import METHODS
from tunefree.core import Reply, System, Vec, stream
from tunefree.errors import ConfigError
from tunefree.methods.registry import build
from tunefree.methods.robust import Robust
from tunefree.wire import Compressed, from_spec

SYS = System(N=12, S=9, K=2, T=20)
AVERAGING = [n for n, cls in METHODS.items() if cls.about.weights == "mean" or cls.about.means]
every_rule = pytest.mark.parametrize("rule", RULES)


class Up(NamedTuple):
    delta: Vec
    g: Vec
    a: float
    pair: tuple[float, ...]


def uploads(n: int) -> list[Up]:
    rng = stream(n, "uploads")
    return [
        Up(torch.from_numpy(delta), torch.from_numpy(g), float(i), (float(i), 1.0))
        for i, (delta, g) in enumerate(rng.normal(size=(n, 2, 5)))
    ]


@every_rule
@pytest.mark.parametrize("n", [3, 4, 9, 10])
def test_the_centre_is_that_of_the_twin(rule: str, n: int) -> None:
    ups = uploads(n)
    one = Robust(build("fedavgm", SYS), rule=rule).centre(list(ups))
    expected = RULES[rule]([np.concatenate([up.delta, up.g]) for up in ups])
    np.testing.assert_allclose(torch.cat([one.delta, one.g]), expected, rtol=1e-10)
    assert one.a == (n - 1) / 2
    assert one.pair == ((n - 1) / 2, 1.0)


@every_rule
def test_a_few_uploads_of_any_size_hardly_move_it(rule: str) -> None:
    ups = uploads(9)
    honest = torch.stack([up.delta for up in ups[2:]])
    far = [up._replace(delta=1e12 * up.delta) for up in ups[:2]]
    one = Robust(build("fedavgm", SYS), rule=rule).centre([*far, *ups[2:]])
    assert float(one.delta.norm()) < 3 * float(honest.norm(dim=1).max())


@every_rule
@pytest.mark.parametrize("name", AVERAGING)
def test_equal_uploads_are_averaged_as_without_it(name: str, rule: str) -> None:
    plain, robust = (build(name, SYS, given) for given in ({}, {"robust": rule}))
    theta0 = torch.from_numpy(stream(1, "theta").normal(size=6))
    for ours, theirs in zip(robust.round(), plain.round(), strict=True):
        up = theirs.Up(*(field(hint) for hint in theirs.Up.__annotations__.values()))
        replies = [Reply(i, 5, 0, up) for i in range(SYS.S)]
        got = ours.up(robust.server(theta0), replies)
        expected = theirs.up(plain.server(theta0), replies)
        torch.testing.assert_close(got.theta, expected.theta)


def test_c_is_the_centre_of_what_each_client_has_sent() -> None:
    algo, theta0 = build("polarfl", SYS, {"robust": "trimmed-mean"}), torch.ones(5).double()
    (exchange,), server = algo.round(), algo.server(theta0)
    sent = np.zeros((SYS.N, 5))
    for t, clients in enumerate([(0, 1, 2, 3), (2, 3, 4, 5), (0, 5, 6, 7)]):
        ups = [
            exchange.Up(1e9 * up.delta if i == 3 else up.delta, 1.0 * (t == 0))
            for i, up in zip(clients, uploads(4 + t), strict=False)
        ]
        server = exchange.up(
            server, [Reply(i, 5, 0, up) for i, up in zip(clients, ups, strict=True)]
        )
        for i, up in zip(clients, ups, strict=True):
            sent[i] += up.d.numpy()
        heard = [row for row in sent if row.any()]
        expected = len(heard) / SYS.N * RULES["trimmed-mean"](heard)
        np.testing.assert_allclose(server.inner.c, expected, rtol=1e-9)
    assert float(server.inner.c.norm()) < 10
    none = {"c": 0 * theta0, "known": 0.0}
    left = algo.with_share(server, 3, {**none, "c": torch.from_numpy(sent[3])}, none, SYS.N)
    sent[3] = 0
    heard = [row for row in sent if row.any()]
    expected = len(heard) / SYS.N * RULES["trimmed-mean"](heard)
    np.testing.assert_allclose(left.inner.c, expected, rtol=1e-9)
    assert float(server.heard.sum()) == 8  # the server before is as it was


def field(hint: Any) -> Any:
    v = torch.from_numpy(stream(2, "up").normal(size=6))
    text = str(hint)
    if "Compressed" in text:
        return from_spec("identity")(v, stream(3, "C"))
    if "Numbers" in text:
        return (1.5,)
    return 1.5 if "float" in text else 2 if "int" in text else v


def test_two_uploads_are_averaged() -> None:
    theta0 = torch.zeros(5, dtype=torch.float64)
    algo = build("fedavgm", SYS, {"robust": "median"})
    (exchange,) = algo.round()
    replies = [Reply(i, 5, 0, exchange.Up(up.delta)) for i, up in enumerate(uploads(2))]
    plain = build("fedavgm", SYS).round()[0].up(algo.server(theta0), replies)
    assert torch.equal(exchange.up(algo.server(theta0), replies).theta, plain.theta)


def test_compressed_uploads_have_a_centre() -> None:
    algo = build("fed_ef_sgd", SYS, {"robust": "median", "compressor": "sign"})
    (exchange,) = algo.round()
    sent = [exchange.Up(from_spec("sign")(up.delta, stream(0, "C"))) for up in uploads(5)]
    assert isinstance(sent[0].delta, Compressed)
    replies = [Reply(i, 5, 0, up) for i, up in enumerate(sent)]
    server = algo.server(torch.zeros(5, dtype=torch.float64))
    middle = torch.stack([up.delta.dense() for up in sent]).median(dim=0).values
    torch.testing.assert_close(
        exchange.up(server, replies).theta,
        build("fed_ef_sgd", SYS, {"compressor": "sign"})
        .round()[0]
        .up(server, [Reply(0, 5, 0, exchange.Up(from_spec("identity")(middle, stream(0, "C"))))])
        .theta,
    )


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("fednova", {}, "its server does not only average uploads"),
        ("fedavg", {"weighting": "examples"}, "its clients are weighted"),
        ("fedavgm", {"weighting": "examples"}, "its clients are weighted"),
        ("fedavgm", {"robust": "mode"}, "robust = 'mode' is not known"),
    ],
)
def test_it_is_refused_with_the_reason(name: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        build(name, SYS, {"robust": "median", **more})
