"""The client's half: a Flower ClientApp that does one job per message and remembers it on disk.

In a process that stays, as a worker of our node does, the model and the data are loaded once a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

if TYPE_CHECKING:
    from tunefree.api import MakeAlgorithm
    from tunefree.flower.client_work import ClientSide
    from tunefree.flower.settings import Builder
    from tunefree.models.targets import Loss

BY_SIZE = {"local-epochs", "sampling"}  # keys of the run config that may need a client's size


def client_app(
    build_model: Builder,
    load_data: Callable[[Context], Any],
    *,
    loss: Loss | None = None,
    algorithm: MakeAlgorithm | None = None,
) -> ClientApp:
    """The ClientApp that trains this model on this client's data.

    `load_data(context)` gives the client's own (x, y) or data set; `context.node_config` says which
    one it is, and is asked once a run by a node that stays. `loss` and `algorithm`, if given, must
    be the server's too.
    """
    app = ClientApp()
    kept: dict[tuple[int, int], ClientSide] = {}  # one at most: a simulation's process has many

    def side(context: Context) -> ClientSide:
        from tunefree.flower.client_work import ClientSide

        key = (context.run_id, context.node_id)
        if key not in kept:
            kept.clear()
            kept[key] = ClientSide(context, build_model, load_data, loss, algorithm)
        return kept[key]

    @app.query()  # type: ignore[untyped-decorator, unused-ignore]
    def hello(message: Message, context: Context) -> Message:
        """Who this is; no data is touched, unless the server must know how many samples it has."""
        words: dict[str, Any] = {"place": context.node_config.get("partition-id", -1)}
        if BY_SIZE & set(context.run_config):
            mine = side(context)
            words |= {"samples": len(mine.data.parts[0])} if mine.by_size else {}
        return Message(RecordDict({"tunefree": ConfigRecord(words)}), reply_to=message)

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        from tunefree.flower.client_work import do_job

        return Message(do_job(message.content, side(context)), reply_to=message)

    @app.evaluate()  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(message: Message, context: Context) -> Message:
        from tunefree.flower.client_work import score

        return Message(score(message.content, side(context)), reply_to=message)

    return app
