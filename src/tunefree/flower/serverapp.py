"""The server's half: a Flower ServerApp that plays our schedules and keeps one run file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

if TYPE_CHECKING:
    from tunefree.api import MakeAlgorithm
    from tunefree.flower.settings import Builder
    from tunefree.models.targets import Loss
    from tunefree.record import Row
    from tunefree.run import Run

log = logging.getLogger("flwr")  # what `flwr run --stream` shows


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

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        from tunefree.flower.federation import federation

        data = None if test is None else test(context)
        run = federation(grid, context.run_config, build_model, data, loss, algorithm)
        before = 0.0
        for row in run:
            log.info("%s", sentence(run, row, row["seconds"] - before))
            before = row["seconds"]
        log.info("run file %s, theta %s", run.record.path, run.theta_sha256)

    return app


def sentence(run: Run, row: Row, seconds: float) -> str:
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
