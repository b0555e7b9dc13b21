"""A server that lies, and nodes that do: what they try is refused, or gives them nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.secure.federation import DOWN, RUN, Federation, refused
from tunefree.errors import ConfigError, FleetError, WireError
from tunefree.secure import masks
from tunefree.secure import node as nodes
from tunefree.secure.arithmetic import Words, from_integers, split, to_integers
from tunefree.secure.messages import (
    AGREE,
    OPEN,
    SHARE,
    Invite,
    Prekey,
    Prekeys,
    Reply,
    Request,
    Terms,
    Turn,
    decode,
    digest,
    encode,
    ids,
)
from tunefree.secure.node import Node
from tunefree.secure.roster import Identity, Roster, prekey_parts
from tunefree.secure.server import Attempt, Pool

ALL = 10**7


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path, 5)


def invitation(attempt: Attempt, **changes: Any) -> bytes:
    return encode(decode(attempt.invite, Invite, ALL)._replace(**changes))


def request(data: bytes, **changes: Any) -> bytes:
    return encode(decode(data, Request, ALL)._replace(**changes))


def unlike(total: Words, *others: Words) -> None:
    """Nothing is left of any of these sums: no word agrees, and the bits are fair."""
    for other in others:
        assert (total != other).all()
        ones = np.unpackbits((total - other).view(np.uint8)).mean()
        assert 0.4 < ones < 0.6


# ---- 3. The invitation ----


def swapped(key: Prekey, field: str) -> Prekey:
    _, public = masks.new_key()
    changed: Any = {field: public}
    return key._replace(**changed)


@pytest.mark.parametrize("field", ["seal", "mask", "number", "node", "signature"])
def test_a_swapped_key_is_refused(federation: Federation, field: str) -> None:
    attempt = federation.attempt()
    first, second, *rest = attempt.cohort.invite.cohort
    if field in ("seal", "mask"):
        changed = swapped(second, field)
    elif field == "signature":
        changed = second._replace(signature=first.signature)
    else:
        more: Any = {field: getattr(second, field) + 1}
        changed = second._replace(**more)
    lie = invitation(attempt, cohort=(first, changed, *rest))
    i = federation.ids[0]
    refused(federation, i, "is not signed for this run", federation.nodes[i].join, lie)


def test_a_prekey_of_another_run_or_federation_is_refused(federation: Federation) -> None:
    i, j = federation.ids[:2]
    attempt = federation.attempt()
    first, second, *rest = attempt.cohort.invite.cohort
    other = replace(federation.roster, federation="another")
    for roster, run in ((federation.roster, "run-2"), (other, RUN)):
        parts = prekey_parts(roster, run, second)
        foreign = second._replace(signature=federation.identities[j].sign("prekey", *parts))
        lie = invitation(attempt, cohort=(first, foreign, *rest))
        refused(federation, i, "is not signed for", federation.nodes[i].join, lie)


def test_a_replayed_prekey_is_refused(federation: Federation) -> None:
    old = federation.attempt(1)
    federation.play(old)
    keys = federation.pool.take(federation.ids)
    i, j = federation.ids[:2]
    own = tuple(
        o if o.node == i else k for k, o in zip(keys, old.cohort.invite.cohort, strict=True)
    )
    peers = tuple(
        o if o.node == j else k for k, o in zip(keys, old.cohort.invite.cohort, strict=True)
    )
    for cohort, match in (
        (own, f"prekey .* of client {i} is unknown, or was"),
        (peers, "was used"),
    ):
        lie = federation.attempt(2, cohort=cohort).invite
        refused(federation, i, match, federation.nodes[i].join, lie)
    fresh = federation.attempt(2, cohort=keys)
    assert (federation.play(fresh) == federation.plain(federation.ids)).all()


def test_a_cohort_below_the_nodes_minimum_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 5, minimum=4)
    attempt = federation.attempt(of=federation.ids[:3])
    i = federation.ids[0]
    refused(federation, i, "minimum 4", federation.nodes[i].join, attempt.invite)


def test_fewer_survivors_than_the_nodes_minimum_are_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 5, minimum=5)
    attempt = federation.attempt()
    federation.join(attempt)
    federation.upload(attempt, without=federation.ids[4:])
    i = federation.ids[0]
    refused(federation, i, "fewer than 5", federation.nodes[i].agree, attempt.agree())


def test_a_member_twice_or_out_of_order_is_refused(federation: Federation) -> None:
    attempt = federation.attempt()
    keys = attempt.cohort.invite.cohort
    i = federation.ids[0]
    for cohort in ((keys[0], *keys), keys[::-1]):
        lie = invitation(attempt, cohort=cohort)
        refused(federation, i, "rising order", federation.nodes[i].join, lie)


def test_a_cohort_without_the_node_is_refused(federation: Federation) -> None:
    attempt = federation.attempt(of=federation.ids[:4])
    i = federation.ids[4]
    refused(federation, i, "not in", federation.nodes[i].join, attempt.invite)


def test_another_roster_is_refused(federation: Federation, tmp_path: Path) -> None:
    """A server that puts a client of its own on the roster."""
    stranger = Identity(Ed25519PrivateKey.generate())
    longer = Roster("hospitals", {**federation.roster.keys, 99: stranger.public})
    pool = Pool(longer, RUN)
    node = Node(tmp_path / "99.sqlite", stranger, longer, 99, 3)
    pool.receive(99, node.prekeys(RUN, 1))
    keys = (*federation.pool.take(federation.ids), *pool.take([99]))
    i = federation.ids[0]
    for roster in (longer, federation.roster):
        terms = federation.terms._replace(clients=6)
        lie = Attempt.of(roster, Turn(RUN, 1, 0), terms, keys).invite
        match = "another roster .* compare" if roster is longer else "client 99 is not signed"
        refused(federation, i, match, federation.nodes[i].join, lie)


def test_a_node_with_another_key_than_in_the_roster_does_not_start(federation: Federation) -> None:
    i, j = federation.ids[:2]
    with pytest.raises(ConfigError, match=f"another key for client {i}"):
        Node(federation.folder / "x", federation.identities[j], federation.roster, i, 3)
    with pytest.raises(ConfigError, match="a sum of 2 hides nobody"):
        Node(federation.folder / "x", federation.identities[i], federation.roster, i, 2)


@pytest.mark.parametrize(
    ("terms", "match"),
    [
        (Terms(4, 0.0, (40, 3), (1.0, 2.0)), "exceeds its scale"),
        (Terms(5, 0.0, (40, 3), (1.0,)), "a length and a bound"),
        (Terms(5, 0.0, (), ()), "a length and a bound"),
        (Terms(5, 0.0, (40, 3), (1.0, 0.0)), "a length and a bound"),
        (Terms(5, 0.0, (40, 0), (1.0, 1.0)), "a length and a bound"),
        (Terms(5, 0.0, (40, 3), (1.0, 1e-300)), "a length and a bound"),
    ],
)
def test_terms_that_do_not_fit_are_refused(
    federation: Federation, terms: Terms, match: str
) -> None:
    attempt = federation.attempt()
    i = federation.ids[0]
    lie = invitation(attempt, terms=terms)
    refused(federation, i, match, federation.nodes[i].join, lie)


def test_a_stale_attempt_is_refused(federation: Federation) -> None:
    first = federation.attempt(2, 1)
    federation.join(first)
    i = federation.ids[0]
    for round, attempt in ((1, 5), (2, 0), (2, 1)):
        lie = federation.attempt(round, attempt, of=federation.ids).invite
        refused(federation, i, "is not after", federation.nodes[i].join, lie)


def test_a_new_attempt_ends_the_old_one(federation: Federation) -> None:
    old = federation.attempt(1, 0)
    federation.join(old)
    requests = old.deliver(DOWN)
    federation.join(federation.attempt(1, 1))
    i = federation.ids[0]
    upload = federation.nodes[i].upload
    match = "not in round 1, attempt 0"
    refused(federation, i, match, upload, requests[i], DOWN, federation.values[i])


def test_a_round_whose_sum_was_opened_is_not_repeated(federation: Federation) -> None:
    """Or the difference of two sums of the same uploads would be one upload."""
    federation.play(federation.attempt(1, 0))
    again = federation.attempt(1, 1, of=federation.ids[1:])
    i = federation.ids[1]
    refused(federation, i, "has opened a sum of", federation.nodes[i].join, again.invite)


# ---- 5 and 6. The shares ----


def test_two_cohorts_get_no_upload(federation: Federation) -> None:
    """A server that equivocates: one invitation to one node, another to the others."""
    keys = federation.pool.take(federation.ids)
    one = federation.attempt(cohort=keys)
    other = Attempt.of(
        federation.roster, Turn(RUN, 1, 0), federation.terms._replace(noise=1.0), keys
    )
    victim = federation.ids[0]
    federation.join(one, told=lambda i, data: other.invite if i == victim else data)
    for i, data in one.deliver(DOWN).items():
        step = federation.nodes[i].upload
        match = "of client .* cannot be opened"
        refused(federation, i, match, step, data, DOWN, federation.values[i])


def boxes_of(data: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    parts = list(decode(data, Request, ALL).parts)
    return request(data, parts=tuple(change(parts)))


def flipped(box: bytes) -> bytes:
    return bytes([box[0] ^ 1]) + box[1:]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda boxes: [flipped(boxes[0]), *boxes[1:]], "cannot be opened"),
        (lambda boxes: [boxes[1], boxes[0], *boxes[2:]], "cannot be opened"),
        (lambda boxes: [boxes[0][:-1], *boxes[1:]], "cannot be opened"),
        (lambda boxes: [b"", *boxes[1:]], "cannot be opened"),
        (lambda boxes: boxes[1:], "3 boxes came, of 4"),
        (lambda boxes: [*boxes, boxes[0]], "5 boxes came, of 4"),
    ],
    ids=["tampered", "of another sender", "cut", "empty", "missing", "too many"],
)
def test_shares_that_were_tampered_with_are_refused(
    federation: Federation, change: Callable[[list[bytes]], list[bytes]], match: str
) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    i = federation.ids[0]
    lie = boxes_of(attempt.deliver(DOWN)[i], change)
    step = federation.nodes[i].upload
    refused(federation, i, match, step, lie, DOWN, federation.values[i])


def test_shares_meant_for_another_client_are_refused(federation: Federation) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    i, j = federation.ids[:2]
    lie = attempt.deliver(DOWN)[j]
    step = federation.nodes[i].upload
    refused(federation, i, "cannot be opened", step, lie, DOWN, federation.values[i])


def test_shares_of_an_earlier_round_are_refused(federation: Federation) -> None:
    old = federation.attempt(1)
    federation.join(old)
    replayed = old.deliver(DOWN)
    new = federation.attempt(2)
    federation.join(new)
    i = federation.ids[0]
    step = federation.nodes[i].upload
    refused(federation, i, "not in round 1", step, replayed[i], DOWN, federation.values[i])
    lie = request(replayed[i], turn=new.cohort.turn)
    refused(federation, i, "cannot be opened", step, lie, DOWN, federation.values[i])


def test_shares_of_the_wrong_length_are_refused(federation: Federation) -> None:
    """From a client that lies; those of others are not shown to it."""
    attempt = federation.attempt()
    federation.join(attempt)
    i, liar = federation.ids[:2]
    seal = federation.nodes[liar]._db.execute("SELECT own FROM attempt").fetchone()[0][32:64]
    cohort = attempt.cohort
    secret = masks.exchange(seal, cohort.keys[i].seal, i)
    box = masks.seal(secret, cohort.sealing, liar, i, bytes(SHARE))
    lie = boxes_of(attempt.deliver(DOWN)[i], lambda boxes: [box, *boxes[1:]])
    step = federation.nodes[i].upload
    refused(federation, i, "another length", step, lie, DOWN, federation.values[i])


@pytest.mark.parametrize(
    ("sharers", "match"),
    [
        (lambda ids: ids[:3], "fewer than 4"),
        (lambda ids: ids[1:], "without this one"),
        (lambda ids: (*ids, 99), "without this one"),
        (lambda ids: ids[::-1], "rising order"),
    ],
)
def test_a_false_list_of_sharers_is_refused(
    federation: Federation, sharers: Callable[[tuple[int, ...]], tuple[int, ...]], match: str
) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    i = federation.ids[0]
    lie = request(attempt.deliver(DOWN)[i], nodes=sharers(attempt.sharers))
    step = federation.nodes[i].upload
    refused(federation, i, match, step, lie, DOWN, federation.values[i])


# ---- 7. The uploads ----


def test_two_models_give_masks_that_do_not_cancel(federation: Federation) -> None:
    """One client gets another model; the server opens all that it can by itself, and sees noise."""
    attempt = federation.attempt()
    federation.join(attempt)
    victim, *others = federation.ids
    secrets = secrets_of(federation)
    federation.upload(attempt, down=lambda i: b"another model" if i == victim else DOWN)
    request = attempt.agree()
    with pytest.raises(WireError, match=f"client {victim} has not signed"):
        attempt.receive(victim, federation.nodes[victim].agree(request))
    federation.agree(attempt, without={victim})
    opening = attempt.open()
    refused(federation, victim, "has not signed this", federation.nodes[victim].open, opening)
    federation.open_sum(attempt, without={victim})
    total = unmasked_with_every_b(attempt, secrets, {victim: b"another model"})
    unlike(total, federation.plain(federation.ids), federation.plain(others))
    unlike(attempt.integers(), federation.plain(federation.ids), federation.plain(others))


def secrets_of(federation: Federation) -> dict[int, bytes]:
    """Every b, as if all had been opened."""
    found = {}
    for i, node in federation.nodes.items():
        found[i] = node._db.execute("SELECT own FROM attempt").fetchone()[0][:32]
    return found


def unmasked_with_every_b(
    attempt: Attempt, secrets: dict[int, bytes], downs: dict[int, bytes]
) -> Words:
    words = attempt._words.copy()
    for i, b in secrets.items():
        context = attempt.cohort.context(digest(downs.get(i, DOWN)), attempt.sharers)
        masks.apply(words, [(masks.self_pad(b, context, i)[0], True)])
    return words


def test_two_lists_of_sharers_give_masks_that_do_not_cancel(tmp_path: Path) -> None:
    """A server that hides two clients from each other: neither has a pad that the other lacks."""
    federation = Federation(tmp_path, 7)
    attempt = federation.attempt()
    federation.join(attempt)
    first, *others, last = federation.ids
    hidden = {first: last, last: first}

    def told(i: int, data: bytes) -> bytes:
        message = decode(data, Request, ALL)
        pairs = zip([node for node in message.nodes if node != i], message.parts, strict=True)
        kept = {node: box for node, box in pairs if node != hidden.get(i)}
        nodes = tuple(sorted({i, *kept}))
        return encode(message._replace(nodes=nodes, parts=tuple(kept.values())))

    federation.upload(attempt, told=told)
    request = attempt.agree()
    for i in hidden:
        refused(federation, i, "without this one", federation.nodes[i].agree, request)
    for i in others:
        attempt.receive(i, federation.nodes[i].agree(request))
    federation.open_sum(attempt)
    total = attempt.integers()
    unlike(total, *(federation.plain(ids) for ids in (federation.ids, others, [first], [last])))


def test_one_upload_says_nothing(federation: Federation) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    i = federation.ids[0]
    data = federation.nodes[i].upload(attempt.deliver(DOWN)[i], DOWN, federation.values[i])
    words = np.frombuffer(decode(data, Reply, ALL).parts[0], "<u4")
    unlike(words, federation.plain([i]))


def test_no_pad_is_used_twice_after_a_resume(federation: Federation) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    request, i = attempt.deliver(DOWN), federation.ids[0]
    federation.nodes[i].upload(request[i], DOWN, federation.values[i])
    other = [value / 2 for value in federation.values[i]]
    for _ in range(2):
        node = federation.nodes[i]
        refused(federation, i, "is not at this step", node.upload, request[i], DOWN, other)
        refused(federation, i, "is not after this node's last", node.join, attempt.invite)
        federation.open(i)
    assert federation.nodes[i]._db.execute("SELECT own FROM attempt").fetchone()[0] == b""


def test_a_bad_vector_changes_nothing(federation: Federation) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    i = federation.ids[0]
    data, good = attempt.deliver(DOWN)[i], federation.values[i]
    step = federation.nodes[i].upload
    too_large = [good[0] + 1, good[1]]
    refused(federation, i, "exceeds its bound", step, data, DOWN, too_large)
    refused(federation, i, "not of 2 vectors", step, data, DOWN, good[:1])
    attempt.receive(i, step(data, DOWN, good))


# ---- 9 and 10. The survivors ----


@pytest.fixture
def uploaded(federation: Federation) -> Attempt:
    attempt = federation.attempt()
    federation.join(attempt)
    federation.upload(attempt)
    return attempt


def survivors(attempt: Attempt, nodes: tuple[int, ...]) -> bytes:
    return encode(Request(attempt.cohort.turn, AGREE, nodes, ()))


def test_two_lists_of_survivors_are_refused(federation: Federation, uploaded: Attempt) -> None:
    i = federation.ids[0]
    federation.nodes[i].agree(survivors(uploaded, uploaded.sharers))
    lie = survivors(uploaded, uploaded.sharers[:4])
    for _ in range(2):
        refused(federation, i, "a second list", federation.nodes[i].agree, lie)
        federation.open(i)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda ids: ids[:3], "fewer than 4"),
        (lambda ids: ids[1:], "without this one"),
        (lambda ids: (*ids, 99), "without this one"),
        (lambda ids: (*ids, ids[-1]), "rising order"),
    ],
)
def test_a_false_list_of_survivors_is_refused(
    federation: Federation,
    uploaded: Attempt,
    change: Callable[[tuple[int, ...]], tuple[int, ...]],
    match: str,
) -> None:
    i = federation.ids[0]
    lie = survivors(uploaded, change(uploaded.sharers))
    refused(federation, i, match, federation.nodes[i].agree, lie)


def signed_by(
    federation: Federation, attempt: Attempt, nodes: tuple[int, ...], by: list[int]
) -> bytes:
    """What the server would need to open these: signatures made with the nodes' keys."""
    statement = *attempt.cohort.context(digest(DOWN), attempt.sharers), ids(nodes)
    parts = tuple(federation.identities[i].sign("survivors", *statement) for i in by)
    return encode(Request(attempt.cohort.turn, OPEN, tuple(by), parts))


def test_forged_signatures_of_survivors_open_nothing(
    federation: Federation, uploaded: Attempt
) -> None:
    federation.agree(uploaded)
    i, j = federation.ids[:2]
    good = decode(uploaded.open(), Request, ALL)
    forged = federation.identities[i].sign("survivors", b"something else")
    for message, match in (
        (good._replace(parts=(good.parts[0], forged, *good.parts[2:])), f"client {j} has not"),
        (good._replace(parts=(good.parts[1], good.parts[0], *good.parts[2:])), f"client {i} has"),
        (good._replace(nodes=good.nodes[:3], parts=good.parts[:3]), "3 signatures came; 4 are"),
        (good._replace(nodes=(i,) * 4, parts=good.parts[:1] * 4), "rising order"),
        (good._replace(parts=good.parts[:4]), "4 signatures came; 4 are"),
        (good._replace(nodes=(*good.nodes[:4], 99)), "are not survivors"),
    ):
        lie = encode(message)
        refused(federation, i, match, federation.nodes[i].open, lie)


def test_both_shares_of_one_peer_are_never_given(federation: Federation, uploaded: Attempt) -> None:
    """Not even if all others collude with the server, and sign a second list."""
    federation.agree(uploaded)
    victim, peer = federation.ids[0], federation.ids[4]
    first = decode(federation.nodes[victim].open(uploaded.open()), Reply, ALL).parts
    fewer = uploaded.survivors[:4]
    lie = signed_by(federation, uploaded, fewer, federation.ids[:4])
    for _ in range(2):
        refused(federation, victim, "has not signed", federation.nodes[victim].open, lie)
        again = federation.nodes[victim].open(uploaded.open())
        assert decode(again, Reply, ALL).parts == first
        federation.open(victim)
    held = federation.nodes[victim]._db.execute("SELECT held FROM attempt").fetchone()[0]
    k = uploaded.sharers.index(peer)
    of_b, of_s = (held[(2 * k + kind) * SHARE :][:SHARE] for kind in (0, 1))
    assert of_b in first
    assert of_s not in first


def test_shares_are_of_b_of_survivors_and_of_s_of_the_dropped(federation: Federation) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    gone = federation.ids[4]
    federation.upload(attempt, without={gone})
    federation.agree(attempt)
    i = federation.ids[0]
    given = decode(federation.nodes[i].open(attempt.open()), Reply, ALL).parts
    held = federation.nodes[i]._db.execute("SELECT held FROM attempt").fetchone()[0]
    for k, node in enumerate(attempt.sharers):
        of_b, of_s = (held[(2 * k + kind) * SHARE :][:SHARE] for kind in (0, 1))
        assert given[k] == (of_s if node == gone else of_b)


def test_no_share_without_a_signature_of_its_own(federation: Federation, uploaded: Attempt) -> None:
    i = federation.ids[0]
    uploaded.agree()
    early = signed_by(federation, uploaded, uploaded.survivors, federation.ids)
    refused(federation, i, "is not at this step", federation.nodes[i].open, early)


def test_a_message_of_one_step_is_not_one_of_another(
    federation: Federation, uploaded: Attempt
) -> None:
    i = federation.ids[0]
    list_, node = uploaded.agree(), federation.nodes[i]
    refused(federation, i, "of step 9 came as one of step 10", node.open, list_)
    refused(federation, i, "not a secure request", node.agree, uploaded.invite)


def test_replayed_messages_of_an_earlier_round_are_refused(federation: Federation) -> None:
    old = federation.attempt(1)
    federation.play(old)
    list_, opening = old.agree(), encode(Request(old.cohort.turn, OPEN, (), ()))
    new = federation.attempt(2)
    federation.join(new)
    federation.upload(new)
    i = federation.ids[0]
    node = federation.nodes[i]
    refused(federation, i, "not in round 1", node.agree, list_)
    refused(federation, i, "not in round 1", node.open, opening)


# ---- Nodes that lie to the server ----


def lies_of_a_client(federation: Federation) -> list[tuple[str, Callable[[Attempt], bytes]]]:
    i, j = federation.ids[:2]

    def resigned(attempt: Attempt, by: int = i, **changes: Any) -> bytes:
        good = decode(federation.nodes[i].join(attempt.invite), Reply, ALL)
        return federation.identities[by].signed(good._replace(**changes))

    return [
        ("not signed with its key", lambda a: resigned(a, by=j)),
        ("of another client", lambda a: resigned(a, node=j)),
        ("of another client, round", lambda a: resigned(a, turn=Turn(RUN, 9, 0))),
        ("attempt or step", lambda a: resigned(a, step=7)),
        ("sent 1 parts", lambda a: resigned(a, parts=(b"",))),
    ]


@pytest.mark.parametrize("case", range(5))
def test_a_client_that_lies_has_dropped_out(federation: Federation, case: int) -> None:
    match, lie = lies_of_a_client(federation)[case]
    i = federation.ids[0]
    attempt = federation.attempt()
    data = lie(attempt)
    with pytest.raises(WireError, match=match):
        attempt.receive(i, data)
    federation.join(attempt, without={i})
    federation.upload(attempt)
    federation.agree(attempt)
    federation.open_sum(attempt)
    assert (attempt.integers() == federation.plain(federation.ids[1:])).all()


def test_an_upload_counts_once_and_has_its_length(federation: Federation) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    i = federation.ids[0]
    data = federation.nodes[i].upload(attempt.deliver(DOWN)[i], DOWN, federation.values[i])
    reply = decode(data, Reply, ALL)
    short = federation.identities[i].signed(reply._replace(parts=(reply.parts[0][:-4],)))
    with pytest.raises(WireError, match="uploaded 168 bytes"):
        attempt.receive(i, short)
    attempt.receive(i, data)
    before = attempt._words.copy()
    with pytest.raises(WireError, match="twice"):
        attempt.receive(i, data)
    assert (attempt._words == before).all()


@pytest.mark.parametrize("liars", [[0], [4], [0, 4], [0, 1]])
def test_false_shares_are_noticed(
    federation: Federation, uploaded: Attempt, liars: list[int]
) -> None:
    """Of 5 clients 4 are needed, so one can be left out."""
    federation.agree(uploaded)
    request = uploaded.open()
    for i in federation.ids:
        data = federation.nodes[i].open(request)
        if i in [federation.ids[k] for k in liars]:
            reply = decode(data, Reply, ALL)
            parts = tuple(bytes(SHARE) for _ in reply.parts)
            data = federation.identities[i].signed(reply._replace(parts=parts))
        uploaded.receive(i, data)
    if len(liars) == 1:
        assert (uploaded.integers() == federation.plain(federation.ids)).all()
    else:
        with pytest.raises(FleetError, match=f"client {federation.ids[0]} do not fit"):
            uploaded.integers()


@pytest.mark.parametrize("dropped", [False, True])
def test_a_client_whose_own_shares_do_not_fit_is_named(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    liar, attempt = federation.ids[1], federation.attempt()
    honest = split

    def false(secret: bytes, t: int, xs: Sequence[int]) -> list[bytes]:
        return [honest(bytes(32), t, [x])[0] for x in xs]

    for i in federation.ids:
        monkeypatch.setattr(nodes, "split", false if i == liar else honest)
        attempt.receive(i, federation.nodes[i].join(attempt.invite))
    federation.upload(attempt, without={liar} if dropped else set())
    federation.agree(attempt)
    federation.open_sum(attempt)
    with pytest.raises(FleetError, match=f"client {liar} do not fit: leave it out"):
        attempt.integers()


@pytest.mark.parametrize("public", [bytes(32), (1).to_bytes(32, "little"), b"short"])
def test_a_prekey_of_low_order_is_refused(federation: Federation, public: bytes) -> None:
    i = federation.ids[0]
    key = Prekey(i, 2**40, public, public, b"")
    parts = prekey_parts(federation.roster, RUN, key)
    key = key._replace(signature=federation.identities[i].sign("prekey", *parts))
    batch = encode(Prekeys(federation.roster.hash, RUN, (key,)))
    with pytest.raises(WireError, match=f"prekey of client {i} is not a usable"):
        federation.pool.receive(i, batch)
    keys = tuple(key if k.node == i else k for k in federation.pool.take(federation.ids))
    attempt, j = federation.attempt(cohort=keys), federation.ids[1]
    refused(federation, j, "is not a usable", federation.nodes[j].join, attempt.invite)


def test_the_pool_gives_no_prekey_twice(federation: Federation) -> None:
    i = federation.ids[0]
    batch = federation.nodes[i].prekeys(RUN, 2)
    federation.pool.receive(i, batch)
    numbers = [federation.pool.take([i])[0].number for _ in range(6)]
    assert numbers == sorted(set(numbers))
    with pytest.raises(WireError, match="was used"):
        federation.pool.receive(i, batch)
    with pytest.raises(FleetError, match=f"client {i} has no prekey left"):
        federation.pool.take([i])
    with pytest.raises(WireError, match="not its own"):
        federation.pool.receive(federation.ids[1], batch)
    with pytest.raises(WireError, match="another run"):
        Pool(federation.roster, "run-2").receive(i, batch)
    with pytest.raises(WireError, match="client 99 is not in the roster"):
        federation.pool.receive(99, batch)


def test_a_copied_public_key_cancels_no_mask(federation: Federation) -> None:
    """k_ij names i and j: who copies k's key does not give i the pad that i has with k."""
    context = (b"context",)
    assert (
        masks.pair_pad(bytes(32), context, 1, 2)[0] != masks.pair_pad(bytes(32), context, 1, 3)[0]
    )


# ---- What is written about it ----


def test_no_secret_is_shown(federation: Federation, caplog: pytest.LogCaptureFixture) -> None:
    attempt = federation.attempt()
    federation.join(attempt)
    i = federation.ids[0]
    own = federation.nodes[i]._db.execute("SELECT own FROM attempt").fetchone()[0]
    federation.upload(attempt)
    federation.agree(attempt)
    data = federation.nodes[i].open(attempt.open())
    reply = decode(data, Reply, ALL)
    text = repr(reply) + repr(federation.nodes[i]) + repr(federation.identities[i]) + caplog.text
    for secret in (own[:32], own[32:64], own[64:96], *reply.parts):
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text


def test_sums_without_masks_are_the_same_integers(federation: Federation) -> None:
    total = sum(
        (to_integers(values, federation.terms) for values in federation.values.values()),
        np.zeros(43, np.uint32),
    )
    secure = federation.attempt()
    federation.play(secure)
    for a, b in zip(from_integers(total, federation.terms), secure.total(), strict=True):
        assert (a == b).all()
