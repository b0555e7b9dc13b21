"""Nodes' keys, in OpenSSH's format."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tunefree.errors import ConfigError


def node_key(path: Path) -> None:
    """Write an ECDSA key for one node, and its public key beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")


def write_private(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    path.touch(mode=0o600)
    pem = serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A node's private key as ssh-keygen writes it."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise ConfigError(f"--key '{path}' does not exist; make one with ssh-keygen") from None
    except OSError as error:
        raise ConfigError(
            f"--key '{path}' cannot be read ({error.strerror}); give the file of a private key"
        ) from error
    except TypeError:
        raise ConfigError(
            f"--key '{path}' has a passphrase, which a node cannot enter; remove it: "
            f"ssh-keygen -p -N '' -f {path}"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            f"--key '{path}' is not an elliptic-curve key in OpenSSH's format; make one: "
            "ssh-keygen -t ecdsa -b 384 -N '' -f FILE"
        )
    return key


def load_public_key(path: Path) -> bytes:
    """A node's public key, from ssh-keygen's file, as the SuperLink stores it."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"'{path}' cannot be read ({error.strerror}); give the .pub file of a node's key"
        ) from error
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(
            f"'{path}' is not an elliptic-curve public key in OpenSSH's format; give the .pub file "
            "that `ssh-keygen -t ecdsa -b 384` wrote"
        )
    return public_bytes(key)


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """The same bytes as Flower's `public_key_to_bytes`."""
    pem = serialization.Encoding.PEM
    return key.public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
