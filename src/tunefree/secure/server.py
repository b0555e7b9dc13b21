"""The server's side of secure sums: it passes messages on, adds words up, and learns the sum.

What a client sends and cannot be used is a WireError and changes nothing: it has dropped out. A
FleetError says that too few are left: the round is to be repeated, with the next attempt and new
prekeys.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.constant_time import bytes_eq
from numpy.typing import NDArray

from tunefree.errors import FleetError, WireError
from tunefree.secure import masks, messages
from tunefree.secure.arithmetic import Words, combine, from_integers, threshold
from tunefree.secure.messages import (
    AGREE,
    OPEN,
    SHARES,
    UPLOAD,
    Ids,
    Prekey,
    Reply,
    Request,
    Saved,
    Terms,
    Turn,
    decode,
    digest,
    encode,
    ids,
)
from tunefree.secure.roster import Cohort, Roster, check_prekey, verified

WAITING = 1024  # prekeys of a client


class Pool:
    """2. The prekeys of a run that wait for a round; each is taken once."""

    def __init__(self, roster: Roster, run: str) -> None:
        self._roster, self._run = roster, run
        self._waiting: dict[int, dict[int, Prekey]] = {node: {} for node in roster.keys}
        self._last = dict.fromkeys(roster.keys, 0)

    def receive(self, node: int, data: bytes) -> None:
        """What `Node.prekeys` gave."""
        message = decode(data, messages.Prekeys, self._roster.most)
        if (message.roster, message.run) != (self._roster.hash, self._run):
            raise WireError(f"the prekeys of client {node} are of another run, or another roster")
        if node not in self._waiting or len(message.keys) + self.left(node) > WAITING:
            raise WireError(f"client {node} is not in the roster, or sent too many prekeys")
        for key in message.keys:
            if key.node != node or key.number <= self._last[node]:
                raise WireError(f"client {node} sent a prekey that is not its own, or was used")
            check_prekey(self._roster, self._run, key)
            for public in (key.seal, key.mask):
                masks.exchange(bytes(range(32)), public, node)  # refuses a key of low order
        self._waiting[node].update({key.number: key for key in message.keys})

    def left(self, node: int) -> int:
        return len(self._waiting[node])

    def forget(self, node: int) -> None:
        """What waits of a client that refuses it: it may have lost its keys."""
        self._waiting[node].clear()

    def take(self, nodes: Iterable[int]) -> tuple[Prekey, ...]:
        """The oldest prekey of each client, in the clients' order."""
        wanted = sorted(nodes)
        if missing := [node for node in wanted if not self._waiting[node]]:
            raise FleetError(f"client {missing[0]} has no prekey left; ask it for a batch")
        for node in wanted:
            self._last[node] = min(self._waiting[node])
        return tuple(self._waiting[node].pop(self._last[node]) for node in wanted)


class Attempt:
    """One attempt at a round.

    In this order: `invite`, `deliver`, `agree` and `open` give what is to be sent; `receive` takes
    the answers after each; `total` is the sum.
    """

    def __init__(self, roster: Roster, invite: bytes) -> None:
        self.invite, self._roster, self.cohort = invite, roster, Cohort(invite, roster)
        self._step = SHARES
        self._heard: dict[int, dict[int, tuple[bytes, ...]]]  # by step and client
        self._heard = {step: {} for step in (SHARES, UPLOAD, AGREE, OPEN)}
        self.sharers: Ids = ()
        self.survivors: Ids = ()
        self._promises: dict[int, bytes] = {}
        self._down = b""
        self._words = np.zeros(sum(self.cohort.terms.counts), np.uint32)

    @classmethod
    def of(cls, roster: Roster, turn: Turn, terms: Terms, cohort: tuple[Prekey, ...]) -> Attempt:
        """3. A new attempt; its `invite` goes to all clients of the cohort."""
        return cls(roster, encode(messages.Invite(turn, roster.hash, terms, cohort)))

    def receive(self, node: int, data: bytes) -> None:
        """A client's answer to the last message; an upload is added up, and not kept."""
        most = self._roster.most + (4 * len(self._words) if self._step == UPLOAD else 0)
        reply = decode(data, Reply, most)
        if reply[:3] != (self.cohort.turn, self._step, node):
            raise WireError(f"what client {node} sent is of another client, round, attempt or step")
        if node not in self.asked or node in self._heard[self._step]:
            raise WireError(f"client {node} was not asked for this, or sends it twice")
        signed = digest(memoryview(data)[:-64])
        if not verified(self._roster.keys[node], reply.signature, "reply", signed):
            raise WireError(f"what came from client {node} is not signed with its key")
        if len(reply.parts) != self._parts(node):
            raise WireError(f"client {node} sent {len(reply.parts)} parts, not {self._parts(node)}")
        if self._step == AGREE:
            key, (signature,) = self._roster.keys[node], reply.parts
            if not verified(key, signature, "survivors", *self._statement()):
                raise WireError(f"client {node} has not signed the list of survivors")
        if self._step == UPLOAD:
            (words,) = reply.parts
            if len(words) != 4 * len(self._words):
                raise WireError(f"client {node} uploaded {len(words)} bytes of words")
            self._words += np.frombuffer(words, "<u4")
            reply = reply._replace(parts=())
        self._heard[self._step][node] = reply.parts

    @property
    def asked(self) -> Ids:
        """To whom the last message went, or goes."""
        before = {SHARES: self.cohort.nodes, UPLOAD: self.sharers, AGREE: self.survivors}
        return before.get(self._step, tuple(sorted(self._heard[AGREE])))

    def _parts(self, node: int) -> int:
        """How many parts a client's answer has."""
        group = self.cohort.group(node)
        return {SHARES: len(group), OPEN: len(set(group) & set(self.sharers))}.get(self._step, 1)

    def deliver(self, down: bytes) -> dict[int, bytes]:
        """6. To each sharer its peers' boxes; all sharers work on the same `down`."""
        self.sharers, self._down, self._step = self._enough(SHARES), digest(down), UPLOAD
        boxes, requests = {}, {}
        for node, (promise, *parts) in self._heard[SHARES].items():
            self._promises[node] = promise
            boxes[node] = dict(zip(self._peers(node), parts, strict=True))
        for node in self.sharers:
            for_it = tuple(boxes[peer][node] for peer in self._peers(node) if peer in boxes)
            requests[node] = encode(Request(self.cohort.turn, UPLOAD, self.sharers, for_it))
        return requests

    def _peers(self, node: int) -> list[int]:
        return [peer for peer in self.cohort.group(node) if peer != node]

    def agree(self) -> bytes:
        """9. To the survivors: who they are."""
        if self._step == UPLOAD:
            self.survivors, self._step = self._enough(UPLOAD), AGREE
        return encode(Request(self.cohort.turn, AGREE, self.survivors, ()))

    def open(self) -> bytes:
        """10. To the survivors that have signed: the signatures."""
        signers, self._step = self._enough(AGREE), OPEN
        signatures = tuple(self._heard[AGREE][node][0] for node in signers)
        return encode(Request(self.cohort.turn, OPEN, signers, signatures))

    def total(self) -> list[NDArray[np.float64]]:
        """11. The sum of the survivors' values, one array per field."""
        return from_integers(self.integers(), self.cohort.terms)

    def integers(self) -> Words:
        """11. The sum of the survivors' integers modulo 2^32."""
        given = {}
        for node, parts in self._heard[OPEN].items():
            given[node] = dict(zip(self._known(node), parts, strict=True))
        context, pads = self.cohort.context(self._down, self.sharers), []
        for node in self.sharers:
            secret = self._rebuilt(node, given)
            if node in self.survivors:
                pads.append(masks.self_pad(secret, context, node))
                continue
            for peer in set(self.cohort.group(node)) & set(self.survivors):
                shared = masks.exchange(secret, self.cohort.keys[peer].mask, peer)
                pads.append(masks.pair_pad(shared, context, peer, node))
        words = self._words.copy()
        masks.apply(words, [(key, not less) for key, less in pads])
        return words

    def _rebuilt(self, node: int, given: dict[int, dict[int, bytes]]) -> bytes:
        """11. b of a survivor, s of another sharer; one giver of false shares is left out."""
        group = self.cohort.group(node)
        givers, t = [i for i in group if i in given], threshold(len(group))
        if len(givers) < t:
            raise FleetError(f"{len(givers)} shares of client {node} came; {t} are needed")
        expected = self.cohort.keys[node].mask
        for liar in (-1, *givers):
            chosen = [i for i in givers if i != liar][:t]
            secret = combine({i + 1: given[i][node] for i in chosen})
            found = masks.public_key(secret)
            if node in self.survivors:
                found, expected = masks.promise(secret), self._promises[node]
            if len(chosen) == t and bytes_eq(found, expected):
                given.pop(liar, None)
                return secret
        raise FleetError(f"the shares of client {node} do not fit: leave it out of the next round")

    def _known(self, node: int) -> list[int]:
        return sorted(set(self.cohort.group(node)) & set(self.sharers))

    def _enough(self, step: int) -> Ids:
        nodes = tuple(sorted(self._heard[step]))
        if len(nodes) < self.cohort.needed:
            raise FleetError(
                f"{len(nodes)} of {len(self.cohort.nodes)} clients answered step {step} of a "
                f"secure sum, which needs {self.cohort.needed}; the round must be repeated"
            )
        return nodes

    def _statement(self) -> tuple[bytes, ...]:
        return *self.cohort.context(self._down, self.sharers), ids(self.survivors)

    def saved(self) -> bytes:
        """9. What to keep on disk before the survivors are asked, for `restored`."""
        words = self._words.astype("<u4").tobytes()
        promises = tuple(self._promises[node] for node in self.sharers)
        head = self.invite, self._down, self.sharers, promises, self.survivors
        return encode(Saved(*head, words))

    @classmethod
    def restored(cls, roster: Roster, data: bytes) -> Attempt:
        """The attempt at its list of survivors: `agree` is what to send."""
        kept = decode(data, Saved, len(data))
        attempt = cls(roster, kept.invite)
        attempt._step, attempt._down, attempt.sharers = AGREE, kept.down, kept.sharers
        attempt._promises = dict(zip(kept.sharers, kept.promises, strict=True))
        attempt.survivors = kept.survivors
        attempt._words = np.frombuffer(kept.words, "<u4").astype(np.uint32)
        return attempt
