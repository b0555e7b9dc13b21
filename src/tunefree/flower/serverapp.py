"""The server's half: a Flower ServerApp that plays our schedules and keeps one run file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tunefree.flower.says import EXPECTED

if TYPE_CHECKING:
    from tunefree.api import MakeAlgorithm
    from tunefree.flower.settings import Builder
    from tunefree.models.targets import Loss
    from tunefree.record import Row
    from tunefree.run import Training

log = logging.getLogger("flwr")  # what `flwr run --stream` shows
OUT = "federation.sqlite"


class ServerSide(NamedTuple):
    """What the settings of a run are checked with before anything is started."""

    build_model: Builder
    loss: Loss | None
    algorithm: MakeAlgorithm | None


def server_app(
    build_model: Builder,
    test: Callable[[Context], Any] | None = None,
    *,
    loss: Loss | None = None,
    algorithm: MakeAlgorithm | None = None,
) -> ServerApp:
    """The ServerApp that trains this model; all settings are keys of the run config.

    `test(context)` gives the server's test set, if it has one. `algorithm` is a function of the
    system constants, for a method of one's own; `client_app` must then be given it too.
    """
    app = ServerApp()
    app.__dict__["tunefree"] = ServerSide(build_model, loss, algorithm)

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        from tunefree.flower.federation import federation
        from tunefree.flower.live import Live

        log.addFilter(in_a_sentence)
        with Live(Path(str(context.run_config.get("out", OUT)))) as live:
            data = None if test is None else test(context)
            run = federation(grid, context.run_config, build_model, data, loss, algorithm, live)
            before = 0.0
            for row in run:
                log.info("%s", sentence(run, row, row["seconds"] - before))
                before = row["seconds"]
            log.info("run file %s, theta %s", run.record.path, run.theta_sha256)

    return app


def in_a_sentence(record: logging.LogRecord) -> bool:
    """Turn an expected error's traceback in Flower's log into its sentence."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, EXPECTED):
        record.msg, record.args, record.exc_info = "the run stopped: %s", (str(error),), None
    return True


def sentence(run: Training, row: Row, seconds: float) -> str:
    """The run's last step in words."""
    sys, step = run.algo.sys, run.step
    scores = [
        f"{name} {row[name]:.4f}"
        for name in ("accuracy", "loss", "train_loss", "train_accuracy")
        if name in row
    ]
    where = f"round {int(row['t']) + 1}/{sys.T}" if row["t"] >= 0 else "opening"
    heard = f"{row['clients']} of N = {sys.N} clients heard in {seconds:.1f} s"
    missing = [f"client {client}: {why}" for _, client, why in (step.absent if step else ())]
    return "; ".join([f"{where}  {heard}", *scores, *missing])
