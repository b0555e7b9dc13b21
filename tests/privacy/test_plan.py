"""The plan: noise against signal, what a budget buys, and what it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunefree.cli import main
from tunefree.core import System
from tunefree.errors import ConfigError
from tunefree.privacy.accountant import gaussian_delta, least
from tunefree.privacy.plan import advised, dimension, plan, plan_records, worth
from tunefree.privacy.promise import Privacy

pytest.importorskip("dp_accounting")
CNN = (250, 10, 5000, 20, 16000, 50, 500, 10)  # of Fashion-MNIST


def test_one_round_by_hand() -> None:
    (row,) = plan(Privacy(8), CNN, 1000, 3, [100], [100])
    sigma = Privacy(8).in_a(System(1000, 100, 3, 100)).release.sigma
    assert row.sigma == pytest.approx(sigma, rel=0.005)
    assert row.noise == pytest.approx(dimension(CNN) ** 0.5 * row.sigma / 100)
    assert row.worth == pytest.approx(100 / (1 / 300 + row.noise**2))
    assert row.bits == 2 * 32 * 21_840 * 100 * 100
    assert row.needed == pytest.approx(1000 * row.noise, abs=1)


def test_the_dimension_is_that_of_the_best_weights() -> None:
    roots = [n**0.5 for n in CNN]
    weights = [root / sum(roots) for root in roots]  # w_l^2
    noise = [n / w for n, w in zip(CNN, weights, strict=True)]
    assert dimension(CNN) == pytest.approx(sum(noise) / len(noise))
    assert dimension([]) == 0
    assert worth(0.0, dimension(CNN), System(10, 5, 4, 1)) == 20


def test_what_a_budget_buys_has_a_limit() -> None:
    rows = plan(Privacy(8), CNN, 1000, 3, [1000], [50, 400])
    mu = 1 / least(lambda sigma: gaussian_delta(1 / sigma, 8) <= 1e-5, 1.0)
    limit = (mu * 1000) ** 2 / dimension(CNN)
    assert all(0.98 * limit < row.worth < limit for row in rows)
    assert advised(rows).rounds == 50


def test_ten_hospitals_are_sent_to_records() -> None:
    with pytest.raises(ConfigError, match="10 clients cannot hide a whole client each") as error:
        plan(Privacy(8), CNN, 10, per_round=[10], rounds=[50])
    assert "0.42 of a whole contribution" in str(error.value)
    assert "unit = 'record'" in str(error.value)


def test_a_cohort_beyond_the_clients_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 1 to all 20 clients"):
        plan(Privacy(8), CNN, 20, per_round=[21])


def test_participations_are_planned_without_coins() -> None:
    (row,) = plan(Privacy(8, participations=5), CNN, 1000, 3, [100], [50])
    assert row.sigma == pytest.approx(Privacy(8).in_a(System(5, 5, 1, 5)).release.sigma)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plan.svg"
    words = "privacy plan --clients 500 --epsilon 4 --per-round 50 100 --rounds 20"
    assert main([*words.split(), "--picture", str(picture)]) == 0
    done = capsys.readouterr().out
    assert "epsilon 4 at delta 1e-05, 500 clients; mlp with 4,810 numbers in 4" in done
    assert "advised: --per-round" in done
    assert "100 per round" in picture.read_text()
    assert main([*words.split(), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["per_round"], row["rounds"]) for row in found["rows"]] == [
        (50, 20),
        (100, 20),
    ]


HOSPITALS = System(N=10, S=10, K=10, T=0)


def test_one_round_of_records_by_hand() -> None:
    (row,) = plan_records(Privacy(3, "record"), CNN, HOSPITALS, 4000, [64], [50])
    assert row.sigma == pytest.approx(0.87, abs=0.01)
    on_gradient = dimension(CNN) * (row.sigma / 64) ** 2
    assert row.noise == pytest.approx((on_gradient / 10) ** 0.5)
    assert row.worth == pytest.approx(50 * 100 / (1 + on_gradient))
    assert row.bits == 2 * 32 * 21_840 * 10 * 50


def test_more_records_and_larger_batches_help() -> None:
    few, many = (plan_records(Privacy(3, "record"), CNN, HOSPITALS, n, [64, 256], [50])
                 for n in (2000, 8000))  # fmt: skip
    assert few[0].noise > few[1].noise > many[1].noise
    assert advised(many).worth > advised(few).worth
    with pytest.raises(
        ConfigError, match="20 records of a client cannot be hidden at epsilon = 0.1"
    ):
        plan_records(Privacy(0.1, "record"), CNN, HOSPITALS, 20)
    with pytest.raises(ConfigError, match="a batch has from 1 to all 20 records"):
        plan_records(Privacy(8, "record"), CNN, HOSPITALS, 20, [64])


def test_the_command_for_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["privacy", "plan", "--unit", "record", "--records", "4000", "--clients", "10"]
    picture = ["--rounds", "50", "100", "--picture", str(tmp_path / "plan.svg")]
    assert main([*words, *picture]) == 0
    assert "advised: --batch-size" in capsys.readouterr().out
    assert (tmp_path / "plan.svg").exists()
    assert main([*words, "--rounds", "50", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["delta"] == 1e-5
    assert data["advised"] in data["rows"]
