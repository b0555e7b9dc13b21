"""Who takes part: the roster, the keys that sign, and the cohort of a round with its graph."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tunefree.errors import ConfigError, WireError
from tunefree.secure.arithmetic import threshold
from tunefree.secure.messages import (
    DEGREE,
    Ids,
    Invite,
    Prekey,
    Reply,
    Request,
    decode,
    digest,
    encode,
    framed,
    ids,
    number,
)

TITLE = "tunefree roster 1"
FORM = re.compile(rf"{TITLE}\n[a-zA-Z0-9._-]{{1,64}}\n((0|[1-9][0-9]{{0,8}}) [0-9a-f]{{64}}\n)+")
TINY = 1e-30  # the least bound


@dataclass(frozen=True)
class Roster:
    """1. A federation's clients by partition-id, each with its Ed25519 key."""

    federation: str
    keys: Mapping[int, bytes]

    def text(self) -> str:
        """The only form of its file."""
        lines = [f"{node} {self.keys[node].hex()}" for node in sorted(self.keys)]
        return "\n".join([TITLE, self.federation, *lines, ""])

    @cached_property
    def hash(self) -> bytes:
        return digest(self.text().encode("ascii"))

    @property
    def fingerprint(self) -> str:
        """Twelve groups of five digits, to be compared by telephone."""
        digits = f"{int.from_bytes(self.hash, 'big') % 10**60:060}"
        return " ".join(digits[at : at + 5] for at in range(0, 60, 5))

    @property
    def most(self) -> int:
        """How many bytes a message may have, but for the words of an upload."""
        return 2**16 + 256 * len(self.keys)


def read_roster(path: Path) -> Roster:
    """The roster in a file; anything but its only form is refused."""
    try:
        text = path.read_bytes().decode("latin-1")
    except OSError as error:
        raise ConfigError(f"roster '{path}' cannot be read ({error.strerror})") from error
    lines = text.split("\n")[1:-1] if FORM.fullmatch(text) else [""]
    pairs = [line.split() for line in lines[1:]]
    roster = Roster(lines[0], {int(node): bytes.fromhex(key) for node, key in pairs})
    if roster.text() != text or len(set(roster.keys.values())) < len(pairs):
        raise ConfigError(
            f"'{path}' is not a roster: '{TITLE}', the federation's name, and per client its "
            "partition-id and a key of its own, in rising order",
            "take the file as it was written",
        )
    return roster


def new_roster(path: Path, federation: str, public: Sequence[Path]) -> None:
    """Write the roster of these nodes, from the public halves of their keys."""
    try:
        lines = sorted((file.read_text().split() for file in public), key=lambda x: int(x[0]))
        keys = {int(node): bytes.fromhex(key) for node, key in lines}
        with path.open("x") as file:
            file.write(Roster(federation, keys).text())
    except OSError as error:
        name = error.filename
        raise ConfigError(f"'{name}' cannot be read or written ({error.strerror})") from error
    except (ValueError, IndexError):
        raise ConfigError(
            "one of the --pub files is not the public half of a node's key",
            "take those that `tunefree flower identity` wrote",
        ) from None
    if len(keys) < len(public):
        path.unlink()
        raise ConfigError("two of the --pub files are of the same client", "give one of each")


def public_file(path: Path, node: int, key: Identity) -> Path:
    """Write the public half of a node's key beside it."""
    public = path.with_name(f"{path.name}.pub")
    public.write_text(f"{node} {key.public.hex()}\n")
    return public


class Identity:
    """A node's Ed25519 key, which signs all that it says."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._key, self.public = private, bytes(private.public_key().public_bytes_raw())

    def sign(self, purpose: str, *parts: bytes) -> bytes:
        return bytes(self._key.sign(framed(purpose, *parts)))

    def signed(self, reply: Reply) -> bytes:
        """The reply as bytes, with its signature."""
        body = encode(reply._replace(signature=bytes(64)))[:-64]
        return body + self.sign("reply", digest(body))


def new_identity(path: Path) -> Identity:
    """Write a node's new key, which only its owner can read."""
    key = Ed25519PrivateKey.generate()
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"key '{path}' cannot be written ({error.strerror})") from error
    with os.fdopen(file, "w") as text:
        text.write(key.private_bytes_raw().hex() + "\n")
    return Identity(key)


def read_identity(path: Path) -> Identity:
    """The key that `new_identity` wrote, if nobody else on this machine can read it."""
    try:
        open_to, text = path.stat().st_mode & 0o077, path.read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"key '{path}' cannot be read ({error.strerror})") from error
    if open_to:
        raise ConfigError(f"others can read key '{path}'", f"chmod 600 {path}")
    try:
        return Identity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text)))
    except ValueError:  # whose message might show what is in the file
        raise ConfigError(f"'{path}' is not a node's key for secure sums") from None


def verified(key: bytes, signature: bytes, purpose: str, *parts: bytes) -> bool:
    """Whether the owner of the key has signed this."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, framed(purpose, *parts))
    except (InvalidSignature, ValueError):
        return False
    return True


def prekey_parts(roster: Roster, run: str, key: Prekey) -> tuple[bytes, ...]:
    """2. What the signature of a prekey covers."""
    return roster.hash, run.encode(), number(key.node), number(key.number), key.seal, key.mask


def check_prekey(roster: Roster, run: str, key: Prekey) -> None:
    """2. It is signed for this run by a client of the roster."""
    public, parts = roster.keys.get(key.node, b""), prekey_parts(roster, run, key)
    if not verified(public, key.signature, "prekey", *parts):
        raise WireError(
            f"prekey {key.number} of client {key.node} is not signed for this run by a key in the "
            f"roster of '{roster.federation}'"
        )


class Cohort:
    """3. An invitation, and what follows from its bytes alone, on a node and on the server."""

    def __init__(self, data: bytes, roster: Roster) -> None:
        self.invite, self.hash = decode(data, Invite, roster.most), digest(data)
        self.roster, self.turn, self.terms = roster, self.invite.turn, self.invite.terms
        self.keys = {key.node: key for key in self.invite.cohort}
        self.nodes = tuple(key.node for key in self.invite.cohort)
        self.needed = threshold(len(self.nodes))
        run, *counts = self.turn
        self.sealing = (run.encode(), *map(number, counts), roster.hash, self.hash)  # 5

    def context(self, down: bytes, sharers: Ids) -> tuple[bytes, ...]:
        """7, 9. What the masks, and the signatures of survivors, are bound to."""
        return *self.sealing, down, ids(sharers)

    def check(self, minimum: int) -> None:
        """3. All that can be checked without a node's memory."""
        terms = self.terms
        if self.invite.roster != self.roster.hash:
            raise WireError(
                "the server has another roster than this node, whose fingerprint is "
                f"{self.roster.fingerprint}; compare fingerprints by telephone"
            )
        if not rising(self.nodes):
            raise WireError("the clients of a cohort are not in rising order")
        if len(self.nodes) < minimum:
            raise WireError(f"a cohort of {len(self.nodes)} is below this node's minimum {minimum}")
        fields = [*terms.counts, *terms.bounds]
        if len(terms.counts) != len(terms.bounds) or min(fields, default=0) < TINY:
            raise WireError("the fields of a secure sum do not each have a length and a bound")
        if len(self.nodes) > terms.clients:
            raise WireError(f"a cohort of {len(self.nodes)} exceeds its scale, for {terms.clients}")
        for key in self.invite.cohort:
            check_prekey(self.roster, self.turn.run, key)

    @cached_property
    def _circle(self) -> tuple[list[int], dict[int, int], list[int]]:
        """4. The clients in a drawn order, the place of each, and drawn steps to its neighbours."""
        order = sorted(self.nodes, key=lambda i: digest(framed("order", self.hash, number(i))))
        steps = list(range(1, (len(order) - 1) // 2 + 1))
        steps.sort(key=lambda i: digest(framed("step", self.hash, number(i))))
        half = steps[: DEGREE // 2]
        return order, {node: at for at, node in enumerate(order)}, [0, *half, *(-i for i in half)]

    def group(self, node: int) -> Ids:
        """4. With whom a client shares, itself included."""
        if len(self.nodes) <= DEGREE + 1:
            return self.nodes
        order, places, steps = self._circle
        return tuple(sorted(order[(places[node] + step) % len(order)] for step in steps))

    def check_list(self, nodes: Ids, among: Ids, minimum: int, me: int) -> None:
        """6, 9. Those from whom the server says that it has heard."""
        if not rising(nodes) or not {me} <= set(nodes) <= set(among):
            raise WireError("a list of clients is not in rising order, or without this one")
        if len(nodes) < (least := max(self.needed, minimum)):
            raise WireError(f"{len(nodes)} of {len(self.nodes)} clients are fewer than {least}")

    def check_signed(self, message: Request, survivors: Ids, statement: tuple[bytes, ...]) -> None:
        """10. Enough survivors have signed this statement."""
        if not rising(message.nodes) or not set(message.nodes) <= set(survivors):
            raise WireError("those who signed are not in rising order, or are not survivors")
        if not self.needed <= len(message.nodes) == len(message.parts):
            raise WireError(f"{len(message.parts)} signatures came; {self.needed} are needed")
        for node, signature in zip(message.nodes, message.parts, strict=True):
            if not verified(self.roster.keys[node], signature, "survivors", *statement):
                raise WireError(f"client {node} has not signed this list of survivors")


def rising(nodes: Ids) -> bool:
    return all(a < b for a, b in pairwise(nodes))
