"""`tunefree flower`: write an app, try it on this machine, run a node, register keys, status."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.errors import ConfigError, FleetError, plain

if TYPE_CHECKING:
    from tunefree.record import Summary


def add_to(command: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)
    new = verbs.add_parser("new", help="write a small, complete Flower app to edit")
    new.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    new.set_defaults(act=new_command)
    up = verbs.add_parser(
        "up", help="run an app once on this machine: start a SuperLink and nodes, stop them after"
    )
    up.add_argument(
        "app", nargs="?", type=Path, default=Path(), metavar="APP", help="its folder (default .)"
    )
    up.add_argument("--nodes", type=int, default=4, metavar="N", help="how many (default 4)")
    up.add_argument("--tls", action="store_true", help="use TLS with new certificates")
    up.add_argument("--auth", action="store_true", help="use node keys; other nodes are refused")
    up.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="for keys, logs, clients' states and the run file",
    )
    up.add_argument("--run-config", default="", metavar="'KEY=VALUE ...'", help="as for flwr run")
    up.add_argument("--stock", action="store_true", help="use Flower's own nodes, for comparison")
    up.add_argument(
        "--database",
        action="store_true",
        help="a SuperLink that still knows the keys after a restart",
    )
    up.set_defaults(act=up_command, spelled=plain)
    node = verbs.add_parser("node", help="run a node on a client's machine")
    node.add_argument("--superlink", required=True, metavar="HOST:PORT", help="its address")
    node.add_argument(
        "--root-certificates", type=Path, metavar="FILE", help="CA certificate of the server"
    )
    node.add_argument("--insecure", action="store_true", help="without TLS, for a first try")
    node.add_argument(
        "--key",
        "--auth-supernode-private-key",
        type=Path,
        metavar="FILE",
        help="this node's private key; its public key is registered with the SuperLink",
    )
    node.add_argument(
        "--node-config", default="", metavar="'KEY=VALUE ...'", help="as for flower-supernode"
    )
    node.add_argument("--warm", action="store_true", help="load torch before the first run starts")
    node.set_defaults(act=node_command)
    register = verbs.add_parser("register", help="register nodes' public keys with a SuperLink")
    register.add_argument("keys", nargs="+", type=Path, metavar="PUB", help="written by ssh-keygen")
    register.add_argument("--superlink", required=True, metavar="HOST:PORT", help="its address")
    register.add_argument(
        "--root-certificates", type=Path, metavar="FILE", help="CA certificate of the server"
    )
    register.set_defaults(act=register_command)
    status = verbs.add_parser(
        "status", help="who is connected, the round, the time left; fails if the server has stopped"
    )
    status.add_argument(
        "place",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="PLACE",
        help="run file, or its folder",
    )
    status.set_defaults(act=status_command)
    for verb in (new, up, node, register, status):
        verb.add_argument("--format", choices=("text", "json"), default="text", help="of results")


def new_command(args: argparse.Namespace) -> int:
    from tunefree.flower.new_app import new_app

    files = [str(file) for file in new_app(args.folder)]
    if args.format == "json":
        print(json.dumps({"files": files}))
    else:
        print("\n".join(files))
        print(f"next: tunefree flower up {shlex.quote(str(args.folder))} --nodes 4 --tls --auth")
    return 0


def up_command(args: argparse.Namespace) -> int:
    from tunefree.record import summarise

    if not (args.app / "pyproject.toml").is_file():
        raise ConfigError(
            f"'{args.app}' has no pyproject.toml; give the folder of a Flower app, or write one: "
            "tunefree flower new DIR"
        )
    if args.nodes < 1:
        raise ConfigError(f"--nodes {args.nodes} is too small; it must be at least 1")
    if args.auth and not args.tls:
        raise ConfigError(
            "--auth needs --tls: node keys are of no use on an unencrypted connection"
        )
    try:
        from tunefree.node.local.up import UpOptions, command_for, default_folder, up
    except ImportError as error:
        raise ConfigError(
            f"Flower is not installed ({error}); install it: pip install 'tunefree[flower]'"
        ) from error
    folder = args.folder or default_folder(args.app.resolve())
    options = UpOptions(
        *(args.app, folder, args.nodes, args.tls, args.auth),
        *(args.run_config, args.stock, args.database),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops everything too
    try:
        out = up(options)
    except KeyboardInterrupt:
        print(
            f"\nstopped by a signal, with all nodes and the SuperLink; to resume the run in "
            f"{folder}: {command_for(options)}",
            file=sys.stderr,
        )
        return 130
    run = summarise(out)
    print(json.dumps(run.as_dict()) if args.format == "json" else closing_words(run))
    return 0 if run.state == "done" else 1


def node_command(args: argparse.Namespace) -> int:
    from tunefree.node import require

    require()
    if args.insecure and (args.root_certificates or args.key):
        raise ConfigError(
            "--insecure cannot be combined with --root-certificates or --key: node keys are of no "
            "use on an unencrypted connection"
        )
    from tunefree.node.pairs import read_pairs
    from tunefree.node.resident import Options, serve

    config = read_pairs("--node-config", args.node_config)
    serve(
        Options(args.superlink, config, args.insecure, args.root_certificates, args.key, args.warm)
    )
    return 0


def register_command(args: argparse.Namespace) -> int:
    from tunefree.node import require

    require()
    from tunefree.node.connection import (
        KnownKeyError,
        RefusedError,
        UnreachableError,
        unreachable,
    )
    from tunefree.node.control import Control
    from tunefree.node.keys import load_public_key

    results = {}
    for key in args.keys:
        load_public_key(key)  # all of them are checked before the first is registered
    with closing(Control(args.superlink, False, args.root_certificates)) as control:
        for key in args.keys:
            try:
                results[str(key)] = str(control.register(key))
            except UnreachableError as error:
                raise FleetError(unreachable(error, args.superlink)) from error
            except KnownKeyError:
                results[str(key)] = (
                    "already registered"
                    if control.registered(key)
                    else "not registered: it was unregistered before, which Flower does not undo; "
                    "make a new key"
                )
            except RefusedError as error:
                results[str(key)] = f"not registered: {error}"
    lines = [f"{key}: {result}" for key, result in results.items()]
    print(json.dumps(results) if args.format == "json" else "\n".join(lines))
    return int(any("not registered" in each for each in results.values()))


def status_command(args: argparse.Namespace) -> int:
    from tunefree.flower.status import find, status

    try:
        found = status(find(args.place))
    except OSError as error:
        raise ConfigError(f"'{args.place}' cannot be read ({error.strerror})") from error
    print(json.dumps(found) if args.format == "json" else "\n".join(status_lines(found)))
    return 0 if found["ok"] else 1


def status_lines(found: dict[str, Any]) -> Iterator[str]:
    """The status as text."""
    from tunefree.record.summary import size

    why = f" ({found['why']})" if found["why"] else ""
    scores = [f"{n} {found[n]:.4f}" for n in ("accuracy", "loss") if n in found]
    progress = f"round {found['round']} of {found['rounds'] or '?'}"
    yield f"{found['run_file']}: {', '.join([found['state'] + why, progress, *scores])}"
    if found.get("seconds_per_round") is not None:
        left = found["seconds_left"]
        yield (
            f"  {found['seconds_per_round']:.2f} s per round"
            f"{'' if left is None else f', about {left:.0f} s left'}"
            f"; sent {size(found['bits_up'])} up and {size(found['bits_down'])} down"
        )
    for one in found["clients"]:
        number = "-" if one["client"] is None else one["client"]
        state = one["state"] + (f", {one['late']:.0f} s so far" if "late" in one else "")
        scored = "".join(f", {name} {value:.4f}" for name, value in one.get("scores", {}).items())
        yield f"  client {number}, {one['name']}, node {one['node'] or '-'}: {state}{scored}"
    for node, reason in found.get("refused", {}).items():
        yield f"  node {node} is refused: {reason}"
    for when, what in found["events"][-10:]:
        yield f"  {time.strftime('%H:%M:%S', time.localtime(when))} {what}"
    for one in found.get("absent", ()):
        yield f"  round {one['round']}, client {one['client']}: {one['why']}"


def closing_words(run: Summary) -> str:
    from tunefree.record.summary import size

    lines = [f"{run.state} after round {run.rounds}"]
    accuracy, loss = run.last("accuracy"), run.last("loss")
    if accuracy is not None:
        lines[0] += f": test accuracy {accuracy:.4f}, loss {loss:.4f}"
    if run.rows:
        lines += [
            f"  sent {size(run.total('bits_up'))} up and {size(run.total('bits_down'))} down in "
            f"{run.total('seconds'):.0f} s; {sum(run.absences.values())} replies were missing or "
            "refused"
        ]
    return "\n".join([*lines, f"  run file {run.path}", f"next: tunefree show {run.path}"])
