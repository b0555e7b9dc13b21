"""A second implementation of the page, in plain Python: integers, hashlib and hmac."""

from __future__ import annotations

import hashlib
import hmac
from fractions import Fraction

P = 2**521 - 1


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes: one block."""
    pseudorandom = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()


def framed(purpose: str, parts: list[bytes]) -> bytes:
    text = b"tunefree.secure.1/" + purpose.encode()
    text += len(parts).to_bytes(4, "big")
    for part in parts:
        text += len(part).to_bytes(4, "big") + part
    return text


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def x25519(private: bytes, u: int) -> bytes:
    """RFC 7748's ladder, slowly."""
    p, k = 2**255 - 19, bytearray(private)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    scalar = int.from_bytes(k, "little")
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in reversed(range(255)):
        on = scalar >> bit & 1
        if on:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % p, u * (da - cb) ** 2 % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
        if on:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, p - 2, p) % p).to_bytes(32, "little")


def shared(private: bytes, public: bytes) -> bytes:
    return x25519(private, int.from_bytes(public, "little") & (2**255 - 1))


def aes256(key: bytes, block: bytes) -> bytes:
    """FIPS 197, byte by byte."""
    words = [list(key[i : i + 4]) for i in range(0, 32, 4)]
    rcon = 1
    for i in range(8, 60):
        word = list(words[-1])
        if i % 8 == 0:
            word = [SBOX[b] for b in word[1:] + word[:1]]
            word[0] ^= rcon
            rcon = double(rcon)
        elif i % 8 == 4:
            word = [SBOX[b] for b in word]
        words.append([a ^ b for a, b in zip(word, words[i - 8], strict=True)])
    keys = [[b for word in words[4 * r : 4 * r + 4] for b in word] for r in range(15)]
    state = [a ^ b for a, b in zip(block, keys[0], strict=True)]
    for r in range(1, 15):
        state = [SBOX[b] for b in state]
        state = [state[(i + 4 * (i % 4)) % 16] for i in range(16)]
        if r < 14:
            mixed = []
            for column in range(0, 16, 4):
                s = state[column : column + 4]
                for i in range(4):
                    a, b, c, d = (s[(i + k) % 4] for k in range(4))
                    mixed.append(double(a) ^ double(b) ^ b ^ c ^ d)
            state = mixed
        state = [a ^ b for a, b in zip(state, keys[r], strict=True)]
    return bytes(state)


def double(a: int) -> int:
    return (a << 1) ^ (0x11B if a & 128 else 0)


def sbox() -> list[int]:
    powers = [1]  # of 3, which gives every element but 0
    while len(powers) < 255:
        powers.append(double(powers[-1]) ^ powers[-1])
    table = []
    for x in range(256):
        inverse = powers[-powers.index(x) % 255] if x else 0
        value = 0x63
        for k in range(5):
            value ^= (inverse << k | inverse >> (8 - k)) & 255
        table.append(value)
    return table


SBOX = sbox()


def pad(key: bytes, count: int) -> list[int]:
    """AES-256-CTR from zero, as little-endian words."""
    stream = b"".join(aes256(key, block.to_bytes(16, "big")) for block in range(-(-count // 4)))
    return [int.from_bytes(stream[4 * i : 4 * i + 4], "little") for i in range(count)]


def fixed(value: float, clients: int, noise: Fraction, bound: Fraction) -> int:
    """The nearest integer to 2^31 value / ((N + 12 z) bound), modulo 2^32; ties to even."""
    return round(Fraction(value) * 2**31 / ((clients + 12 * noise) * bound)) % 2**32


def shamir(coefficients: list[int], x: int) -> int:
    return sum(c * pow(x, k, P) for k, c in enumerate(coefficients)) % P


def at_zero(points: dict[int, int]) -> int:
    """Newton's divided differences, in place of Lagrange's weights."""
    xs, table = list(points), list(points.values())
    for level in range(1, len(xs)):
        for i in range(len(xs) - 1, level - 1, -1):
            step = pow(xs[i] - xs[i - level], P - 2, P)
            table[i] = (table[i] - table[i - 1]) * step % P
    value = 0
    for x, c in zip(reversed(xs), reversed(table), strict=True):
        value = (c - value * x) % P
    return value
