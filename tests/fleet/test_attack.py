"""Simulated attacks: what attackers send, that a run of them says so, and that they are the same
on every fleet and after a resume."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tunefree.cli import main
from tunefree.core import Vec, stream
from tunefree.data.samples import Federation, Partition, Samples
from tunefree.errors import ConfigError
from tunefree.fleet.attack import Attack, from_spec
from tunefree.fleet.job import Job
from tunefree.record import Record
from tunefree.run.run import prepare, resume_command
from tunefree.settings import load
from tunefree.wire import Compressed
from tunefree.wire import from_spec as compressor


class Up(NamedTuple):
    delta: Vec
    steps: int


V = torch.from_numpy(stream(0, "v").normal(size=50)).float()
UP = Up(V, 3)


def sent(spec: str, t: int = 0, client: int | None = None) -> Up:
    attack = from_spec(spec, N=6, seed=1)
    assert attack is not None
    who = attack.clients[0] if client is None else client
    changed: Up = attack(Job(who, t, "round", 0, None), UP)
    return changed


def test_what_attackers_send() -> None:
    assert torch.equal(sent("sign-flip:2").delta, -V)
    assert torch.equal(sent("scaled:-10:2").delta, -10 * V)
    noise = sent("noise:2").delta
    assert float(noise.norm()) == pytest.approx(float(V.norm()), rel=0.3)
    assert abs(float(noise @ V)) < 0.5 * float(V @ V)
    assert not torch.equal(noise, sent("noise:2", t=1).delta)
    first, later = (sent("drift:2", t=t).delta - V for t in (0, 35))
    torch.testing.assert_close(later, 1.02**35 * first)
    assert sent("noise:2").steps == 3


def test_the_others_are_honest() -> None:
    attack = from_spec("sign-flip:2", N=6, seed=1)
    assert attack is not None
    assert len(attack.clients) == 2
    honest = next(client for client in range(6) if client not in attack.clients)
    assert sent("sign-flip:2", client=honest) is UP


@pytest.mark.parametrize("spec", ["sign", "rotated:2", "top:0.3", "qsgd:4"])
def test_compressed_uploads_are_attacked(spec: str) -> None:
    class Sent(NamedTuple):
        delta: Compressed

    up = Sent(compressor(spec)(V, stream(1, "C")))
    attack = Attack("scaled", -2.0, (0,), seed=0)
    changed = attack(Job(0, 0, "round", 0, None), up)
    torch.testing.assert_close(changed.delta.dense(), -2 * up.delta.dense())
    assert changed.delta.bits == up.delta.bits


def test_labels_are_flipped_for_attackers_only() -> None:
    samples = Samples(torch.zeros(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
    parts = Partition([np.array([0, 1]), np.array([2, 3]), np.array([4, 5])])
    federation = Federation(samples, parts, None, 3)
    assert Attack("label-flip", -1, (1,), 0).samples(federation).y.tolist() == [0, 1, 0, 2, 1, 2]
    assert Attack("noise", -1, (1,), 0).samples(federation) is samples
    real = Federation(Samples(samples.x, samples.y.float()), parts, None, None)
    with pytest.raises(ConfigError, match="needs one label per sample"):
        Attack("label-flip", -1, (1,), 0).samples(real)


@pytest.mark.parametrize(
    "spec", ["sign-flip", "sign-flip:7", "sign-flip:0", "sign-flip:1.5", "flip:2", "scaled:3",
             "noise:2:1", "scaled:inf:1", "noise:two"]
)  # fmt: skip
def test_what_is_no_attack_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="is not an attack"):
        from_spec(spec, N=6, seed=0)


SMALL: dict[str, Any] = {
    "clients": 6, "per_round": 4, "local_steps": 2, "rounds": 5, "eval_every": 5,
    "partition": "iid", "model": "logistic", "fleet": "serial",
}  # fmt: skip


def theta(path: Path, **more: Any) -> str:
    run = prepare(load(None, {**SMALL, **more, "out": str(path)}))
    for _ in run:
        pass
    return run.theta_sha256


@pytest.mark.filterwarnings("ignore:the formula gives beta ")
@pytest.mark.parametrize("attack", ["noise:2", "label-flip:2"])
def test_an_attack_is_the_same_on_a_pool_and_after_a_resume(attack: str, tmp_path: Path) -> None:
    expected = theta(tmp_path / "a.sqlite", attack=attack)
    assert expected != theta(tmp_path / "honest.sqlite")
    pool = theta(tmp_path / "b.sqlite", attack=attack, fleet="pool", workers=1)
    assert pool == expected
    path = tmp_path / "c.sqlite"
    steps = iter(prepare(load(None, {**SMALL, "attack": attack, "out": str(path)})))
    for _ in islice(steps, 3):
        pass
    steps.close()
    again = resume_command(path, fleet="serial")
    for _ in again:
        pass
    assert again.theta_sha256 == expected


def test_nobody_takes_such_a_run_for_an_honest_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tunefree.report.content import workload_title

    path, words = tmp_path / "a.sqlite", "under the simulated attack sign-flip:2"
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in SMALL.items()]
    assert main(["run", *flags, "--attack", "sign-flip:2", "--out", str(path)]) == 0
    assert capsys.readouterr().out.count(words) == 2  # in the introduction and at the end
    assert main(["show", str(path)]) == 0
    assert words in capsys.readouterr().out
    assert words in workload_title(Record.open(path).summary())
    out = str(tmp_path / "compared")
    common = [flag for flag in flags if not flag.startswith(("--fleet", "--rounds"))]
    words_of = ["--rounds=2", "--attack", "noise:2", "--seeds", "0", "--out", out]
    assert main(["compare", "polarfl", "fedavg:robust=median", *common, *words_of]) == 0
    assert "all runs under the simulated attack noise:2" in capsys.readouterr().out
