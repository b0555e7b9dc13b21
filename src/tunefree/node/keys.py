"""Nodes' keys, in OpenSSH's format, and certificates for a federation on one machine."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tunefree.errors import ConfigError

DAYS = 30  # that a certificate of ours is valid
PEM = serialization.Encoding.PEM


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
    path.write_bytes(key.private_bytes(PEM, form, serialization.NoEncryption()))


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A node's private key as ssh-keygen writes it."""
    try:
        about = path.stat()
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
    mine = about.st_uid == os.geteuid()  # or root's, for a group of the service's user
    if about.st_mode & (0o077 if mine else 0o007):
        raise ConfigError(f"--key '{path}' can be read by others; run: chmod 600 {path}")
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
    return key.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def certificates(folder: Path) -> None:
    """Write ca.crt, server.crt and server.key: a CA for this server only, valid for DAYS days."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name, name = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
        for text in ("tunefree local authority", "localhost")
    )
    here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    ca = (
        new_certificate(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False)
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, True, True, False, False), True
        )
        .sign(ca_key, hashes.SHA384())
    )
    server = (
        new_certificate(name, ca_name, key)
        .add_extension(x509.SubjectAlternativeName(here), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False
        )
        .sign(ca_key, hashes.SHA384())
    )
    (folder / "ca.crt").write_bytes(ca.public_bytes(PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(PEM))
    write_private(folder / "server.key", key, serialization.PrivateFormat.PKCS8)


def new_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )
