"""Keys that two clients share, the boxes between them and the pads: all encryption is here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tunefree.errors import WireError
from tunefree.secure.arithmetic import CHUNK, Words
from tunefree.secure.messages import digest, framed, number

Context: TypeAlias = tuple[bytes, ...]  # what a key is bound to
Pad: TypeAlias = tuple[bytes, bool]  # its key, and whether it is subtracted


def new_key() -> tuple[bytes, bytes]:
    """An X25519 key: private and public."""
    private = X25519PrivateKey.generate().private_bytes_raw()
    return private, public_key(private)


def public_key(private: bytes) -> bytes:
    return bytes(X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def exchange(private: bytes, public: bytes, owner: int) -> bytes:
    """What two clients share; the public key is the owner's."""
    try:
        peer = X25519PublicKey.from_public_bytes(public)
        return bytes(X25519PrivateKey.from_private_bytes(private).exchange(peer))
    except ValueError:  # of another length, or a point of low order
        raise WireError(f"a prekey of client {owner} is not a usable X25519 key") from None


def derive(secret: bytes, purpose: str, context: Context, *nodes: int) -> bytes:
    """32 bytes by HKDF-SHA256 without salt."""
    info = framed(purpose, *context, *map(number, nodes))
    return bytes(HKDF(SHA256(), 32, salt=None, info=info).derive(secret))


def pair_pad(secret: bytes, context: Context, i: int, j: int) -> Pad:
    """7. What i adds or subtracts for j."""
    return derive(secret, "pair", context, min(i, j), max(i, j)), i > j


def self_pad(b: bytes, context: Context, i: int) -> Pad:
    """7. What i adds for itself."""
    return derive(b, "self", context, i), False


def promise(b: bytes) -> bytes:
    """5, 11. H(b): by this the server knows that it has rebuilt b."""
    return digest(framed("promise", b))


def apply(words: Words, pads: Iterable[Pad]) -> None:
    """7. Add pads to words, in place."""
    start = modes.CTR(bytes(16))  # a key is used for one pad only
    streams = [(Cipher(algorithms.AES256(key), start).encryptor(), less) for key, less in pads]
    zeros, room = memoryview(bytes(4 * CHUNK)), bytearray(4 * CHUNK + 15)
    for at in range(0, len(words), CHUNK):
        part = words[at : at + CHUNK]
        for stream, less in streams:
            stream.update_into(zeros[: 4 * len(part)], room)
            pad = np.frombuffer(room, "<u4", len(part))
            (np.subtract if less else np.add)(part, pad, out=part)


def seal(secret: bytes, context: Context, i: int, j: int, shares: bytes) -> bytes:
    """5. Shares from i for j; the key is used for them alone, hence the nonce of zeros."""
    cipher = ChaCha20Poly1305(derive(secret, "seal", context, i, j))
    return bytes(cipher.encrypt(bytes(12), shares, associated(context, i, j)))


def unseal(secret: bytes, context: Context, i: int, j: int, box: bytes) -> bytes:
    """6. The same, opened by j."""
    cipher = ChaCha20Poly1305(derive(secret, "seal", context, i, j))
    try:
        return bytes(cipher.decrypt(bytes(12), box, associated(context, i, j)))
    except InvalidTag:
        raise WireError(f"the shares of client {i} for client {j} cannot be opened") from None


def associated(context: Context, i: int, j: int) -> bytes:
    return framed("share", *context[:3], number(i), number(j))  # run, round, attempt, from, to
