"""The server side: a Flower ServerApp that runs our schedules and writes one run file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tunefree.flower.log import EXPECTED, JsonLines, as_json

if TYPE_CHECKING:
    from tunefree.flower.settings import Builder
    from tunefree.methods.own import Maker
    from tunefree.models.targets import Loss
    from tunefree.record import Row
    from tunefree.run.engine import Training

log = logging.getLogger("flwr")  # shown by `flwr run --stream`
OUT = "federation.sqlite"


class OurServerApp(ServerApp):  # type: ignore[misc, unused-ignore]
    """A ServerApp that `tunefree flower up` can check with a run's settings before it starts."""

    def __init__(self, build_model: Builder, loss: Loss | None, algorithm: Maker | None) -> None:
        super().__init__()
        self.build_model, self.loss, self.algorithm = build_model, loss, algorithm


def server_app(
    build_model: Builder,
    test: Callable[[Context], Any] | None = None,
    *,
    loss: Loss | None = None,
    algorithm: Maker | None = None,
) -> OurServerApp:
    """The ServerApp that trains this model; all settings are keys of the run config.

    `test(context)` returns the server's test set, if it has one. `algorithm` is a function of the
    system constants, for your own method; `client_app` must then be given it too.
    """
    app = OurServerApp(build_model, loss, algorithm)

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        from tunefree.flower.federation import Federation
        from tunefree.flower.status import Live

        os.umask(0o077)  # the run file is for its operator only
        log.addFilter(without_traceback)
        if as_json():
            log.handlers = [handler := logging.StreamHandler()]
            handler.setFormatter(JsonLines())
        with Live(Path(str(context.run_config.get("out", OUT)))) as live:
            data = None if test is None else test(context)
            federation = Federation(grid, context.run_config, build_model, data, loss, algorithm)
            live.watch(federation)
            run = federation.run()
            earlier = run.history
            before = earlier[-1]["seconds"] if earlier else 0.0
            if run.record.state == "done":
                log.info("this run was finished already; raise rounds to continue it")
            for row in run:
                log.info("%s", progress(run, row, row["seconds"] - before))
                before = row["seconds"]
                for sentence in run.news():
                    log.warning("%s", sentence)
            log.info("run file %s, theta %s", run.record.path, run.theta_sha256)

    return app


def without_traceback(record: logging.LogRecord) -> bool:
    """Replace an expected error's traceback in Flower's log by its message."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, EXPECTED):
        record.msg, record.args, record.exc_info = "the run stopped: %s", (str(error),), None
    return True


def progress(run: Training, row: Row, seconds: float) -> str:
    """The run's last step as one line."""
    sys, step = run.algo.sys, run.step
    scores = [
        f"{name} {row[name]:.4f}"
        for name in ("accuracy", "loss", "train_loss", "train_accuracy", "epsilon")
        if name in row
    ]
    where = f"round {int(row['t']) + 1}/{sys.T}" if row["t"] >= 0 else "opening"
    clients = f"{row['clients']} of N = {sys.N} clients in {seconds:.1f} s"
    missing = [f"client {client}: {why}" for _, client, why in (step.absent if step else ())]
    return "; ".join([f"{where}  {clients}", *scores, *missing])
