"""Shamir's shares, derived keys, pads and integers agree with a second, naive implementation."""

from __future__ import annotations

import random
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from tests.secure import naive
from tests.secure.federation import DOWN, RUN, Federation
from tunefree.errors import WireError
from tunefree.secure import arithmetic, masks
from tunefree.secure.messages import Reply, Terms, decode


def test_the_naive_primitives_agree_with_their_standards() -> None:
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")  # FIPS 197, C.3
    cipher = naive.aes256(bytes(range(32)), plain)
    assert cipher.hex() == "8ea2b7ca516745bfeafc49904b496089"
    private = bytes(range(1, 33))
    assert naive.x25519(private, 9) == masks.public_key(private)
    assert naive.hkdf(b"\x0b" * 22, b"").hex() == (  # RFC 5869, A.3
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    )


def test_shares_by_hand() -> None:
    five, seven = arithmetic.shares([5, 7, 2], [1, 10])
    assert (int.from_bytes(five), int.from_bytes(seven)) == (14, 275)
    points = dict(zip([1, 2, 3], arithmetic.shares([5, 7, 2], [1, 2, 3]), strict=True))
    assert arithmetic.combine(points) == (5).to_bytes(32)


@pytest.mark.parametrize("t", [1, 2, 7, 20])
def test_shares_agree_with_powers_and_divided_differences(t: int) -> None:
    rng = random.Random(t)
    coefficients = [rng.getrandbits(256), *(rng.randrange(naive.P) for _ in range(t - 1))]
    xs = rng.sample(range(1, 1000), t + 5)
    shares = arithmetic.shares(coefficients, xs)
    assert [int.from_bytes(share) for share in shares] == [
        naive.shamir(coefficients, x) for x in xs
    ]
    some = dict(zip(xs[5:], shares[5:], strict=True))
    assert naive.at_zero({x: int.from_bytes(y) for x, y in some.items()}) == coefficients[0]
    assert arithmetic.combine(some) == coefficients[0].to_bytes(32)


def test_fewer_shares_give_another_secret() -> None:
    secret = bytes(range(32))
    xs = [1, 2, 3, 4, 5]
    points = dict(zip(xs, arithmetic.split(secret, 4, xs), strict=True))
    assert arithmetic.combine({x: points[x] for x in (5, 2, 4, 1)}) == secret
    assert arithmetic.combine({x: points[x] for x in (5, 2, 4)}) != secret
    assert points != dict(zip(xs, arithmetic.split(secret, 4, xs), strict=True))


def test_the_threshold() -> None:
    assert [arithmetic.threshold(n) for n in (3, 4, 5, 10, 150)] == [3, 3, 4, 7, 101]
    for n in range(3, 400):
        assert 3 * (2 * arithmetic.threshold(n) - n) > n  # what two such sets have in common


def test_derived_keys() -> None:
    secret, context = bytes(range(32)), (b"run", naive.number(4), naive.number(2), b"h" * 32)
    pair = [*context, naive.number(3), naive.number(9)]
    assert masks.pair_pad(secret, context, 3, 9) == (
        naive.hkdf(secret, naive.framed("pair", pair)),
        False,
    )
    assert masks.pair_pad(secret, context, 9, 3)[0] == masks.pair_pad(secret, context, 3, 9)[0]
    assert masks.pair_pad(secret, context, 9, 3)[1]
    alone = naive.framed("self", [*context, naive.number(3)])
    assert masks.self_pad(secret, context, 3) == (naive.hkdf(secret, alone), False)
    assert masks.promise(secret) == sha256(naive.framed("promise", [secret])).digest()


def test_a_box() -> None:
    secret, context = bytes(range(32)), (b"run", naive.number(4), naive.number(2), b"h" * 32)
    ends = [naive.number(3), naive.number(9)]
    key = naive.hkdf(secret, naive.framed("seal", [*context, *ends]))
    associated = naive.framed("share", [*context[:3], *ends])
    box = ChaCha20Poly1305(key).encrypt(bytes(12), b"shares", associated)
    assert masks.seal(secret, context, 3, 9, b"shares") == box
    assert masks.unseal(secret, context, 3, 9, box) == b"shares"
    with pytest.raises(WireError, match="shares of client 9 for client 3 cannot be opened"):
        masks.unseal(secret, context, 9, 3, box)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_pads(count: int) -> None:
    first, second = bytes(range(32)), bytes(range(1, 33))
    words = np.arange(count, dtype=np.uint32)
    masks.apply(words, [(first, False), (second, True)])
    expected = zip(naive.pad(first, count), naive.pad(second, count), strict=True)
    assert words.tolist() == [(k + a - b) % 2**32 for k, (a, b) in enumerate(expected)]


def test_pads_over_several_chunks() -> None:
    count = 2 * arithmetic.CHUNK + 5
    words, whole = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
    masks.apply(words, [(bytes(32), False)])
    stream = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16)))
    whole[:] = np.frombuffer(stream.encryptor().update(bytes(4 * count)), "<u4")
    assert (words == whole).all()


def test_integers() -> None:
    rng = np.random.default_rng(1)
    terms = Terms(clients=7, noise=0.75, counts=(200, 50), bounds=(0.5, 1000.0))
    values: list[NDArray[Any]] = [
        rng.uniform(-0.5, 0.5, 200).astype(np.float32),
        rng.uniform(-1000, 1000, 50),
    ]
    expected = [
        naive.fixed(float(value), 7, Fraction(3, 4), Fraction(bound))
        for field, bound in zip(values, (0.5, 1000.0), strict=True)
        for value in field
    ]
    assert arithmetic.to_integers(values, terms).tolist() == expected  # scales here are exact
    near = arithmetic.from_integers(arithmetic.to_integers(values, terms), terms)
    for value, back, bound in zip(values, near, terms.bounds, strict=True):
        np.testing.assert_allclose(back, value, atol=bound * 16 / 2**31)


@pytest.mark.parametrize("clients", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sum_of_the_largest_values_does_not_wrap_around(clients: int, sign: float) -> None:
    terms = Terms(clients, 0.0, (2,), (3.0,))
    each = arithmetic.to_integers([np.full(2, 3.0 * sign)], terms)
    total = np.zeros(2, np.uint32)
    for _ in range(clients):
        total += each
    (back,) = arithmetic.from_integers(total, terms)
    np.testing.assert_allclose(back, 3.0 * sign * clients, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.01, 1.01])
def test_what_exceeds_its_bound_is_refused(bad: float) -> None:
    terms = Terms(3, 0.0, (2,), (1.0,))
    with pytest.raises(WireError, match="exceeds its bound 1"):
        arithmetic.to_integers([np.array([0.0, bad])], terms)
    with pytest.raises(WireError, match="not of 1 vectors"):
        arithmetic.to_integers([np.zeros(3)], terms)


def test_an_upload_from_the_page(tmp_path: Path) -> None:
    """Every word of an upload, computed from the secrets in the node's file."""
    federation = Federation(tmp_path, 3, counts=(9,))
    attempt = federation.attempt()
    federation.join(attempt)
    requests = attempt.deliver(DOWN)
    i = federation.ids[1]
    own = federation.nodes[i]._db.execute("SELECT own FROM attempt").fetchone()[0]
    b, s = own[:32], own[64:96]
    data = federation.nodes[i].upload(requests[i], DOWN, federation.values[i])
    words = np.frombuffer(decode(data, Reply, 10**6).parts[0], "<u4").tolist()

    sharers = b"".join(map(naive.number, federation.ids))
    context = [
        RUN.encode(),
        naive.number(1),
        naive.number(0),
        sha256(federation.roster.text().encode()).digest(),
        sha256(attempt.invite).digest(),
        sha256(DOWN).digest(),
        sharers,
    ]
    pads = [naive.pad(naive.hkdf(b, naive.framed("self", [*context, naive.number(i)])), 9)]
    for key in attempt.cohort.invite.cohort:
        if (j := key.node) != i:
            ends = [naive.number(min(i, j)), naive.number(max(i, j))]
            info = naive.framed("pair", [*context, *ends])
            pad = naive.pad(naive.hkdf(naive.shared(s, key.mask), info), 9)
            pads.append(pad if i < j else [-word for word in pad])
    plain = arithmetic.to_integers(federation.values[i], federation.terms).tolist()
    masked = [sum(column) % 2**32 for column in zip(plain, *pads, strict=True)]
    assert words == masked
