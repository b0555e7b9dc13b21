"""The client's half: a Flower ClientApp that does one job per message and remembers it on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

if TYPE_CHECKING:
    from tunefree.api import MakeAlgorithm
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
    one it is. `loss` and `algorithm`, if given, must be the server's too.
    """
    app = ClientApp()

    @app.query()  # type: ignore[untyped-decorator, unused-ignore]
    def hello(message: Message, context: Context) -> Message:
        """Who this is; no data is touched, unless the server must know how many samples it has."""
        words: dict[str, Any] = {"place": context.node_config.get("partition-id", -1)}
        if BY_SIZE & set(context.run_config):
            from tunefree.flower.client_work import ClientSide

            side = ClientSide(context, build_model, load_data, loss, algorithm)
            words |= {"samples": len(side.data().parts[0])} if side.by_size else {}
        return Message(RecordDict({"tunefree": ConfigRecord(words)}), reply_to=message)

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        from tunefree.flower.client_work import ClientSide, do_job

        side = ClientSide(context, build_model, load_data, loss, algorithm)
        return Message(do_job(message.content, side), reply_to=message)

    @app.evaluate()  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(message: Message, context: Context) -> Message:
        from tunefree.flower.client_work import ClientSide, score

        side = ClientSide(context, build_model, load_data, loss, algorithm)
        return Message(score(message.content, side), reply_to=message)

    return app
