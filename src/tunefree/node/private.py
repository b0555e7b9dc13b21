"""All that we use of Flower beyond its public API, in this one file.

It was tested with the versions in `versions.py`, which `versions.require` checks before it imports
this. Nothing is decided here: it turns Flower's requests into plain values and our errors.
"""

from __future__ import annotations

import hashlib
import io
import re
import ssl
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from cryptography.hazmat.primitives.serialization.ssh import load_ssh_private_key
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.config import (
    get_fused_config_from_dir,
    get_fused_config_from_fab,
    get_project_config,
    parse_config_args,
)
from flwr.common.constant import ErrorCode
from flwr.common.serde import (
    fab_from_proto,
    fab_to_proto,
    message_from_proto,
    message_to_proto,
    run_from_proto,
    user_config_to_proto,
)
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
)
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.logger import update_console_handler
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tunefree.errors import ConfigError
from tunefree.flower.log import without_colours

if TYPE_CHECKING:
    from flwr.serverapp import Grid
    from flwr.superlink.grid import HttpGrid  # a third of a node's memory if it were loaded there

HEARTBEAT = 15.0  # seconds; a node that was silent for two of them counts as disconnected
BACK_OFF, LONGEST_BACK_OFF = 0.03, 0.5  # seconds: a message is announced before it is complete
UNREGISTERED = "unregistered"  # the status of a node whose key was revoked
COMPLETE = 60.0  # seconds until an announced message must be complete


EXAMPLES = {
    "--run-config": "'rounds=20 algorithm=\"padamfed\"'",
    "--node-config": "'partition-id=0 num-partitions=4 store=\"FOLDER\"'",
}


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
        if status == httpx.codes.UNAUTHORIZED:
            raise StrangerError("it does not know this node") from error
        if status in (502, 503, 504):
            raise UnreachableError(f"HTTP status {status}") from error
        raise RefusedError(why) from error
    except httpx.TransportError as error:
        raise UnreachableError(str(error) or type(error).__name__) from error


class Announced(NamedTuple):
    """A message that was announced: its metadata, and the names of its objects."""

    run: int
    id: str
    kind: str
    proto: bytes
    objects: tuple[str, ...]


class Deflated(NamedTuple):
    """A message as it is sent over the wire."""

    proto: bytes
    tree: bytes
    objects: dict[str, bytes]


class App(NamedTuple):
    """An app that is installed here, and its run config."""

    fab_id: str
    version: str
    fab_hash: str
    run_config: dict[str, Any]
    series: int


def load_key(path: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    """A node's private key as ssh-keygen writes it."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
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
    return key, key.public_key()


def load_public_key(path: Path) -> bytes:
    """A node's public key as ssh-keygen writes it."""
    try:
        key = load_ssh_public_key(path.read_bytes())
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
    return public_key_to_bytes(key)


def check_address(address: str) -> None:
    """Refuse an address that no connection can be made to."""
    try:
        url = httpx.URL(f"https://{address}")
        fits = bool(url.host) and url.path == "/" and (url.port is None or 0 < url.port < 2**16)
    except httpx.InvalidURL:
        fits = False
    if not fits:
        raise ConfigError(
            f"--superlink '{address}' is not HOST:PORT, as in server.example.org:8000"
        )


class Link:
    """A node's connection to its SuperLink; every request is signed with the node's key."""

    def __init__(self, address: str, insecure: bool, ca: Path | None, key: Path) -> None:
        check_address(address)
        keys = load_key(key)
        self._public = public_key_to_bytes(keys[1])
        version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
        signing = NodeAuthHttpInterceptor(*keys)
        certificates = read_certificates(ca)
        self._client = FleetHttpClient.from_server_address(
            address, insecure, certificates, interceptors=[version, signing]
        )
        self._node = Node()

    def register(self) -> None:
        """Register this node's own key; only a SuperLink without node keys allows it."""
        with plain_errors():
            self._client.RegisterNode(RegisterNodeFleetRequest(public_key=self._public))

    def activate(self) -> int:
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        with plain_errors():
            self._node = Node(node_id=self._client.ActivateNode(request).node_id)
        return int(self._node.node_id)

    def deactivate(self, node: int) -> None:
        with plain_errors():
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=node))

    def heartbeat(self) -> bool:
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT)
        with plain_errors():
            return bool(self._client.SendNodeHeartbeat(request).success)

    def pull(self) -> Announced | None:
        with plain_errors():
            response = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not response.messages_list:
            return None
        return announced(response.messages_list[0], response.message_object_trees[0])

    def fetch(self, message: Announced) -> dict[str, bytes]:
        """All objects of a message, which the SuperLink may then delete."""
        found = {}
        for name in message.objects:
            request = PullObjectRequest(node=self._node, run_id=message.run, object_id=name)
            end, wait = time.monotonic() + COMPLETE, BACK_OFF
            while True:
                with plain_errors():
                    response = self._client.PullObject(request)
                if response.object_available:
                    break
                if not response.object_found or time.monotonic() > end:
                    raise RefusedError("a message never became complete")
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_BACK_OFF)
            found[name] = response.object_content
        with plain_errors():
            self._client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(
                    node=self._node, run_id=message.run, message_object_id=message.id
                )
            )
        return found

    def push(self, run: int, reply: Deflated, seconds: float) -> None:
        """Send a reply; Flower records how long the work took."""
        with plain_errors():
            response = self._client.PushMessages(
                PushMessagesRequest(
                    node=self._node,
                    messages_list=[MessageProto.FromString(reply.proto)],
                    message_object_trees=[ObjectTree.FromString(reply.tree)],
                    clientapp_runtime_list=[seconds],
                )
            )
            for name in response.objects_to_push:
                self._client.PushObject(
                    PushObjectRequest(
                        node=self._node,
                        run_id=run,
                        session_id=response.session_id,
                        object_id=name,
                        object_content=reply.objects[name],
                    )
                )

    def running(self, run: int) -> bool:
        """Whether a run has not ended yet."""
        try:
            with plain_errors():
                self._client.GetRun(GetRunRequest(node=self._node, run_id=run))
        except (RunOverError, RefusedError):
            return False
        return True

    def install(self, run: int) -> App:
        """Download a run's app, and install it as Flower's own node would."""
        from flwr.cli.install import install_from_fab

        with plain_errors():
            response = self._client.GetRun(GetRunRequest(node=self._node, run_id=run))
            info = run_from_proto(response.run)
            request = GetFabRequest(node=self._node, hash_str=info.fab_hash, run_id=run)
            fab = fab_from_proto(self._client.GetFab(request).fab)
        if hashlib.sha256(fab.content).hexdigest() != info.fab_hash:
            raise RefusedError("the app is not the one that the run names")
        with redirect_stdout(io.StringIO()):
            install_from_fab(fab.content, skip_prompt=True)
        config = get_fused_config_from_fab(fab.content, info)
        return App(info.fab_id, info.fab_version, info.fab_hash, dict(config), info.series_id)

    def close(self) -> None:
        self._client.close()


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


def announced(proto: Any, tree: Any) -> Announced:
    about = proto.metadata
    names = tuple(dict.fromkeys(each.object_id for each in iterate_object_tree(tree)))
    return Announced(
        about.run_id, tree.object_id, about.message_type, proto.SerializeToString(), names
    )


def inflate(message_id: str, objects: dict[str, bytes]) -> Message:
    """A message from its objects."""
    message = cast("Message", inflate_object_from_contents(message_id, dict(objects)))
    message.metadata.__dict__["_message_id"] = message_id
    return message


def deflate(message: Message) -> Deflated:
    message.metadata.__dict__["_message_id"] = message.object_id
    with no_object_id_recompute():
        tree = get_object_tree(message)
        nested = get_all_nested_objects(message)
        objects = {name: each.deflate() for name, each in nested.items()}
    bare = remove_content_from_message(message) if message.has_content() else message
    proto = message_to_proto(bare)
    return Deflated(proto.SerializeToString(), tree.SerializeToString(), objects)


def failure(proto: bytes, why: str) -> Deflated:
    """The reply that reports that the work on a message failed, and why."""
    asked = message_from_proto(MessageProto.FromString(proto))
    return deflate(failed(asked, why))


def failed(asked: Message, why: str) -> Message:
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, why), reply_to=asked)


def context_of(run: int, node: int, node_config: dict[str, Any], app: App) -> Context:
    """The context that an app gets for a run on a node, which this process now works for."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, node, 0
    return Context(
        run_id=run,
        node_id=node,
        node_config=node_config,
        state=RecordDict(),
        run_config=app.run_config,
        series_id=app.series,
    )


def load_client_app(app: App) -> ClientApp:
    from flwr.clientapp.utils import get_load_client_app_fn

    load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    return load(app.fab_id, app.version, app.fab_hash)


def load_server_app(app: Path) -> Any:
    """The ServerApp of an app that is a folder here."""
    from flwr.serverapp import ServerApp
    from flwr.supercore.object_ref import load_app

    reference = project_config(app)["tool"]["flwr"]["app"]["components"]["serverapp"]
    with app_errors(app, f"serverapp = '{reference}'"):
        found = load_app(reference, ValueError, app)
    if not isinstance(found, ServerApp):
        raise ConfigError(f"serverapp = '{reference}' of '{app}' is not a Flower ServerApp")
    return found


@contextmanager
def app_errors(app: Path, part: str) -> Iterator[None]:
    """Turn any error of an app's own code into one sentence, with the line that raised it."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        path = Path(last.filename)
        known = path.is_relative_to(app) and not isinstance(error, SyntaxError)  # it names its line
        at = f" at {path}, line {last.lineno}" if known else ""
        first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise ConfigError(
            f"{part} of the app '{app}' fails ({type(error).__name__}{at}: {first}); correct it"
        ) from error


def project_config(app: Path) -> dict[str, Any]:
    """An app's pyproject.toml, once Flower accepts it."""
    try:
        return dict(get_project_config(app))
    except (ValueError, OSError) as error:
        why = "; ".join(line.strip(" -") for line in str(error).splitlines()[1:]) or str(error)
        raise ConfigError(f"Flower does not accept '{app}/pyproject.toml' ({why})") from error


def run_config_of(app: Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """The run config that the app's server and clients will see."""
    project_config(app)
    usual = get_fused_config_from_dir(app, {})
    for key in overrides:
        if key not in usual:  # Flower allows no other
            raise ConfigError(
                f"--run-config {key} is not among the keys of [tool.flwr.app.config] in "
                f"'{app / 'pyproject.toml'}', and Flower lets a run change only those; add it there"
            )
    return dict(get_fused_config_from_dir(app, overrides))


def parse_config(flag: str, words: str) -> dict[str, Any]:
    """'a=1 b="x"', as Flower's commands read it."""
    try:
        if (
            not words.endswith(".toml")
            and re.sub(r"""\S+?=('[^']*'|"[^"]*"|\S+)""", "", words).strip()
        ):
            raise ValueError  # Flower would skip what it cannot read
        return parse_config_args([words]) if words.strip() else {}
    except OSError as error:
        raise ConfigError(f"{flag} '{words}' cannot be read ({error.strerror})") from error
    except (click.ClickException, ValueError):
        raise ConfigError(
            f"{flag} {words!r} cannot be read; write KEY=VALUE pairs separated by spaces, with "
            f"text in quotes: {EXAMPLES.get(flag, EXAMPLES['--run-config'])}"
        ) from None


def plain_log() -> None:
    """Print Flower's own log lines with their time and without colours."""
    update_console_handler(timestamps=True, colored=False)


class Replies:
    """The nodes' replies, each as soon as it is complete: none waits for another."""

    def __init__(self, grid: HttpGrid) -> None:
        self._grid = grid
        # replies that are not complete yet, by the message that they answer
        self._partial: dict[str, tuple[Announced, dict[str, bytes]]] = {}

    def nodes(self) -> dict[int, str]:
        """The nodes that are connected, and since when."""
        return {node.node_id: node.last_activated_at for node in self._grid.get_nodes()}

    def pull(self, numbers: Sequence[str]) -> list[Message]:
        """The complete replies to these messages."""
        client, node = self._grid._runtime_client, self._grid.node
        run = self._grid.run.run_id
        self._partial = {n: each for n, each in self._partial.items() if n in set(numbers)}
        if asked := [number for number in numbers if number not in self._partial]:
            response = client.PullMessages(PullAppMessagesRequest(message_ids=asked))
            for proto, tree in zip(
                response.messages_list, response.message_object_trees, strict=True
            ):
                self._partial[proto.metadata.reply_to_message_id] = (announced(proto, tree), {})
        complete = []
        for number, (reply, objects) in list(self._partial.items()):
            for name in reply.objects:
                if name not in objects:
                    request = PullObjectRequest(node=node, run_id=run, object_id=name)
                    response = client.PullObject(request)
                    if not response.object_available:
                        break
                    objects[name] = response.object_content
            if len(objects) == len(reply.objects):
                del self._partial[number]
                client.ConfirmMessageReceived(
                    ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=reply.id)
                )
                complete.append(inflate(reply.id, objects))
            elif not response.object_found:
                del self._partial[number]
                asked_for = message_from_proto(MessageProto.FromString(reply.proto))
                asked_for.metadata.__dict__["_reply_to_message_id"] = number
                complete.append(incomplete(asked_for))
        return complete


def incomplete(reply: Message) -> Message:
    """The error that replaces a reply whose objects never arrived."""
    error = Error(ErrorCode.MESSAGE_UNAVAILABLE, "its upload was interrupted")
    message = Message(error, reply_to=reply)
    message.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return message


def replies(grid: Grid) -> Replies | None:
    """The replies of a deployed federation; None for any other Grid, such as a simulation's."""
    from flwr.superlink.grid import HttpGrid

    return Replies(grid) if isinstance(grid, HttpGrid) else None


class RunState(NamedTuple):
    """The state of a run as Flower reports it."""

    status: str  # pending, starting, running, finished
    sub_status: str  # of a finished one: completed, failed, stopped
    details: str


class Control:
    """What `flwr` does with a SuperLink: register nodes, start a run, read its log."""

    def __init__(self, address: str, insecure: bool, ca: Path | None) -> None:
        check_address(address)
        version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        self._client = ControlHttpClient.from_server_address(
            address, insecure, read_certificates(ca), interceptors=[version]
        )

    def register(self, public_key: Path) -> int:
        request = RegisterNodeRequest(public_key=load_public_key(public_key))
        with plain_errors():
            return int(self._client.RegisterNode(request).node_id)

    def registered(self, public_key: Path) -> bool:
        """Whether a node with this key is registered now."""
        key = load_public_key(public_key)
        return any(node.public_key == key and node.status != UNREGISTERED for node in self.nodes())

    def start(self, app: Path, run_config: dict[str, Any]) -> int:
        """Bundle an app and start a run of it; returns the run's number."""
        content = bundle(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(
            fab=fab_to_proto(fab), override_config=user_config_to_proto(run_config)
        )
        with plain_errors():
            response = self._client.StartRun(request)
        if not response.HasField("run_id"):
            raise RefusedError("the SuperLink started no run")
        return int(response.run_id)

    def log(self, run: int) -> Iterator[str]:
        """A run's log, line by line, until the run ends."""
        rest = ""
        with plain_errors():
            for part in self._client.StreamLogs(StreamLogsRequest(run_id=run, after_timestamp=0.0)):
                *lines, rest = (rest + part.log_output).split("\n")
                yield from (without_colours(line) for line in lines)
        if rest:
            yield without_colours(rest)

    def state(self, run: int) -> RunState:
        with plain_errors():
            found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return RunState(found.status, found.sub_status, found.details)

    def stop(self, run: int) -> None:
        with plain_errors():
            self._client.StopRun(StopRunRequest(run_id=run))

    def nodes(self) -> list[Any]:
        with plain_errors():
            return list(self._client.ListNodes(ListNodesRequest()).nodes_info)

    def close(self) -> None:
        self._client.close()


def bundle(app: Path) -> bytes:
    """An app as Flower sends it to the nodes."""
    from flwr.cli.build import build_fab_from_disk

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by Flower's own dependencies
        try:
            return bytes(build_fab_from_disk(app))
        except (click.ClickException, ValueError, OSError) as error:
            raise ConfigError(f"Flower cannot bundle the app '{app}' ({error})") from error
