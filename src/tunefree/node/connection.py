"""A connection to a SuperLink: its address, its certificates, and its errors as ours."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor

from tunefree.errors import ConfigError
from tunefree.node.pairs import read_toml


class UnreachableError(Exception):
    """The SuperLink does not answer."""


class RefusedError(Exception):
    """The SuperLink answers, and refuses the request."""


class KnownKeyError(RefusedError):
    """The SuperLink knows this key already, registered or unregistered since."""


class StrangerError(RefusedError):
    """The SuperLink does not know this node."""


class RunOverError(Exception):
    """The run of this request has ended."""


def connect(
    kind: Any, name: str, address: str, insecure: bool, ca: Path | None, also: Sequence[Any] = ()
) -> Any:
    """A client of one of the SuperLink's APIs, for the program of this name."""
    check_address(address)
    interceptors = [RuntimeVersionHttpInterceptor(component_name=name), *also]
    certificates = read_certificates(ca)
    return kind.from_server_address(address, insecure, certificates, interceptors=interceptors)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise Flower's and HTTP's errors as ours."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        detail = FlowerError.from_json(error.response.text)
        status = error.response.status_code
        why = detail.message if detail else f"HTTP status {status}"
        if detail is not None and detail.code == ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED:
            raise RunOverError(why) from error
        if detail is not None and detail.code == ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
            raise KnownKeyError(why) from error
        if "www-authenticate" in error.response.headers:  # a proxy's answer, not Flower's
            raise RefusedError("it asks operators for NAME:PASSWORD@ before its address") from error
        if status == httpx.codes.UNAUTHORIZED:
            raise StrangerError("it does not know this node") from error
        if status in (502, 503, 504):
            raise UnreachableError(f"HTTP status {status}") from error
        raise RefusedError(why) from error
    except httpx.TransportError as error:
        raise UnreachableError(str(error) or type(error).__name__) from error


def unreachable(error: UnreachableError, superlink: str, connected: bool = False) -> str:
    """Why a SuperLink cannot be reached, and what an operator can do about it.

    `connected`: it was reached before, so both sides agree on TLS.
    """
    where, text = f"the SuperLink at {superlink.rpartition('@')[2]}", str(error).lower()
    if "mismatch" in text:
        return (
            f"{where} has a certificate for another name ({error}); list this name or address in "
            "its subjectAltName"
        )
    if "certificate" in text:
        return (
            f"{where} has a certificate that is not trusted ({error}); renew it there, or "
            "give the CA that signed it with --root-certificates"
        )
    if ("ssl" in text or "disconnected" in text) and not connected:
        return f"{where} closes the connection ({error}); does only one side use TLS?"
    return f"{where} does not answer ({error})"


def named(superlink: str) -> tuple[str, Path | None, bool]:
    """The address, CA certificate and lack of TLS of a connection in the config.toml of `flwr`."""
    path = Path(os.environ.get("FLWR_HOME") or "~/.flwr").expanduser() / "config.toml"
    try:
        found = read_toml(path)["superlink"][superlink]
        ca = found.get("root-certificates")
        return str(found["address"]), Path(ca) if ca else None, found.get("insecure") is True
    except (KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"--superlink '{superlink}' is neither HOST:PORT nor a connection with an address in "
            f"'{path}'"
        ) from None


def check_address(address: str) -> None:
    """Refuse an address that no connection can be made to."""
    try:
        url = httpx.URL(f"https://{address}")
        fits = bool(url.host) and url.path == "/" and (url.port is None or 0 < url.port < 2**16)
    except httpx.InvalidURL:
        fits = False
    if not fits:
        raise ConfigError(
            f"--superlink '{address.rpartition('@')[2]}' is not HOST:PORT, as in "
            "server.example.org:8000"
        )


def read_certificates(ca: Path | None) -> bytes | None:
    if ca is None:
        return None
    what = "give the certificate of the CA that signed the SuperLink's certificate, as a PEM file"
    try:
        content = ca.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--root-certificates '{ca}' cannot be read ({error.strerror}); {what}"
        ) from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=content.decode("ascii")
        )
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"--root-certificates '{ca}' contains no certificate; {what}") from None
    return content
