"""No honest upload is refused for its size, whatever the method and however unlike the clients."""

from __future__ import annotations

from typing import Any

import pytest

from tests.variants import METHODS
from tunefree.core import System
from tunefree.methods.registry import build
from tunefree.record import Record
from tunefree.run.run import prepare
from tunefree.settings import load

FEDERATIONS: dict[str, dict[str, Any]] = {
    "skewed": {"clients": 50, "partition": "dirichlet:0.1"},
    "one label each": {"clients": 50, "partition": "shards:1"},
    "one sample each": {"clients": 1400, "partition": "iid", "batch_size": 1},
    "one at a time": {"clients": 50, "per_round": 1, "partition": "dirichlet:0.1"},
    "one sample at a time": {"clients": 1400, "per_round": 1, "partition": "iid", "batch_size": 1},
    "solved": {"clients": 10, "partition": "iid", "rounds": 400},
    "epochs": {"clients": 50, "partition": "dirichlet:0.1", "local_epochs": 1},
    "late": {"clients": 50, "schedule": "buffered", "concurrency": 40, "delays": "large"},
}
BUFFERED = {name for name in METHODS if len(build(name, System(N=8, S=3, K=2, T=7)).round()) == 1}


def refused(**given: Any) -> list[Any]:
    usual = {"rounds": 200, "local_steps": 5, "fleet": "serial", "eval_every": 1000}
    if given.get("local_epochs"):
        del usual["local_steps"]
    run = prepare(load(None, {**usual, **given}))
    for _ in run:
        pass
    return Record.open(run.record.path).absences()  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the formula gives beta ")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("federation", FEDERATIONS)
def test_no_honest_upload_is_too_large(federation: str, name: str, tmp_path: Any) -> None:
    if (federation == "late" and name not in BUFFERED) or name == "local_sgd_c":
        pytest.skip("this method cannot be run so")
    given = FEDERATIONS[federation]
    assert refused(algorithm=name, out=str(tmp_path / "run.sqlite"), **given) == []
