"""The client side: a Flower ClientApp that does one job per message and saves its state on disk.

In a process that stays, such as a worker of our node, model and data are loaded once per run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tunefree.flower.trips import SECURE, check_node

if TYPE_CHECKING:
    from tunefree.flower.client_work import ClientSide
    from tunefree.flower.settings import Builder
    from tunefree.methods.own import Maker
    from tunefree.models.targets import Loss

BY_SIZE = {
    "local_epochs",
    "sampling",
    "weighting",
}  # keys of the run config that may need a client's size


def client_app(
    build_model: Builder,
    load_data: Callable[[Context], Any],
    *,
    loss: Loss | None = None,
    algorithm: Maker | None = None,
) -> ClientApp:
    """The ClientApp that trains this model on this client's data.

    `load_data(context)` returns the client's own (x, y) or data set, chosen by
    `context.node_config`; our node calls it once per run. `loss` and `algorithm`, if given, must be
    the same as the server's.
    """
    app = ClientApp()
    cache: dict[tuple[int, int], ClientSide] = {}  # one at most: a simulation has many per process

    def side(context: Context) -> ClientSide:
        from tunefree.flower.client_work import ClientSide

        key = (context.run_id, context.node_id)
        if key not in cache:
            cache.clear()
            cache[key] = ClientSide(context, build_model, load_data, loss, algorithm)
        return cache[key]

    @app.query()  # type: ignore[untyped-decorator, unused-ignore]
    def hello(message: Message, context: Context) -> Message:
        """Tell the server which client this is; loads data only if the server needs its size."""
        check_node(context.node_config, bool(context.run_config.get("secure")))
        words: dict[str, Any] = {"place": context.node_config.get("partition-id", -1)}
        if BY_SIZE & set(context.run_config):
            mine = side(context)
            words |= {"samples": len(mine.data.parts[0])} if mine.tells_size else {}
        return Message(RecordDict({"tunefree": ConfigRecord(words)}), reply_to=message)

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        check_node(context.node_config, SECURE in message.content)
        if SECURE in message.content:
            from tunefree.flower.client_secure import answer

            return Message(answer(message.content, side(context)), reply_to=message)
        from tunefree.flower.client_work import reply_to

        return Message(reply_to(message.content, side(context)), reply_to=message)

    @app.evaluate()  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(message: Message, context: Context) -> Message:
        check_node(context.node_config, secure=False)
        from tunefree.flower.client_work import score

        return Message(score(message.content, side(context)), reply_to=message)

    return app
