"""A client's side of secure sums: it answers the trips of a sum, and nothing else.

Its node's config names the `roster`, the node's key (`roster-key`) and the `minimum` of clients; a
node that has these answers to nothing but secure sums, whatever the server asks for.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from tunefree.errors import ConfigError, WireError
from tunefree.fleet.summed import Form
from tunefree.flower.client_state import state_path
from tunefree.flower.client_work import SERVER, ClientSide, common, do_job
from tunefree.flower.envelope import Envelope, data_in, pack, unpack
from tunefree.flower.private import fits
from tunefree.flower.trips import ROSTER, SECURE, bound, number_of, taken, work_hash
from tunefree.privacy.noise import on_grid
from tunefree.privacy.release import bound_of
from tunefree.secure.arithmetic import scale
from tunefree.secure.messages import (
    AGREE,
    LEAST,
    OPEN,
    PREKEYS,
    SHARES,
    UPLOAD,
    Invite,
    Request,
    Terms,
)
from tunefree.secure.messages import decode as read
from tunefree.secure.node import Node
from tunefree.secure.roster import read_identity, read_roster

KEY, MINIMUM = "roster-key", "minimum"  # of the node's config


def node_of(context: Context) -> Node:
    """The client's side of the protocol, with its file, key and roster."""
    config = context.node_config
    if lacking := [name for name in ("partition-id", KEY) if name not in config]:
        raise ConfigError(f"the node's config has a {ROSTER} and no {lacking[0]}", "add it")
    path = state_path(config, context.node_id, SECURE)
    path.parent.mkdir(parents=True, exist_ok=True)
    key, roster = read_identity(Path(str(config[KEY]))), read_roster(Path(str(config[ROSTER])))
    minimum = int(config.get(MINIMUM, LEAST))
    return Node(path, key, roster, int(config["partition-id"]), minimum)


def answer(content: RecordDict, side: ClientSide) -> RecordDict:
    """The reply to a trip; what is not in its order is refused, and changes nothing."""
    step = taken(content, "step", int)
    with closing(node_of(side.context)) as node:
        if step == SHARES:
            return join(content, side, node)
        if step == PREKEYS:
            return pack(
                None, node.prekeys(taken(content, "run", str), taken(content, "count", int))
            )
        data = taken(content, "data", bytes)
        if step == UPLOAD:
            return pack(None, upload(content, node, data))
        if step == AGREE:
            return pack(None, node.agree(data))
        if step == OPEN:
            return pack(None, node.open(data))
    raise WireError(f"the server asks for step {step}, which no client answers")


def join(content: RecordDict, side: ClientSide, node: Node) -> RecordDict:
    """3 to 5, and the work: its result waits on disk for the others' shares."""
    envelope: Envelope = unpack(content, Envelope, SERVER)
    invite: bytes = taken(content, "data", bytes)
    read_invite = read(invite, Invite, node.most)
    turn, expected = read_invite.turn, number_of(envelope.t, envelope.exchange)
    if turn[:2] != (envelope.run, expected):
        raise WireError(f"the server asks for work of round {expected} in a sum of another")
    shares = node.join(invite)
    words, job, reply = do_job(content, side)
    if words.lost:
        return pack(words, None)
    algo, settings, terms = side.algorithm(envelope.N, envelope.K), side.settings, read_invite.terms
    bound = (settings.epsilon and bound_of(algo, settings.clip or None)) or 0.0
    form = Form.of(algo, job, side.objective[0].theta0, bound)
    plain = form.terms(len(read_invite.cohort))
    if not (fits(terms, plain) if bound else terms == plain):
        raise WireError("the server's scale is not this method's")
    if bound:
        values = bounded(form.values(reply.up), bound, terms)
    else:
        form.check(reply.up)
        values = form.values(reply.up)
    file = io.BytesIO()
    np.savez(file, *values)
    node.keep(turn, work_hash(common(envelope), data_in(content, SERVER)), file.getvalue())
    told = " ".join(map(str, form.exponents(reply.up)))
    return pack(words._replace(n=1, drawn=0, exponents=told), shares)


def bounded(
    values: Sequence[NDArray[np.floating]], bound: float, terms: Terms
) -> list[NDArray[np.floating]]:
    """The upload in whole steps of the sum's scale, and no longer than the bound.

    What cannot be used is a zero: whether a sum has enough clients must not depend on their data.
    """
    flat, step = np.concatenate(values), 1 / scale(terms, bound)
    whole = on_grid(flat if np.isfinite(flat).all() else np.zeros_like(flat), step, bound) * step
    return np.split(whole, np.cumsum(terms.counts)[:-1])


def upload(content: RecordDict, node: Node, data: bytes) -> bytes:
    """6, 7. The result, scaled as all have agreed, and masked."""
    exponents: list[int] = taken(content, "exponents", list)
    work, kept = node.kept(read(data, Request, node.most).turn)
    with np.load(io.BytesIO(kept), allow_pickle=False) as file:
        values = [file[name] for name in file.files]
    if len(exponents) != len(values) or not all(
        type(e) is int and abs(e) <= 1000 for e in exponents
    ):
        raise WireError("the server's exponents are not one for each field")
    scaled = [np.ldexp(value, -e) for value, e in zip(values, exponents, strict=True)]
    return node.upload(data, bound(work, exponents), scaled)
