"""`tunefree flower`: write an app, try it on this machine, run a node, register keys, status."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tunefree.cli import flags
from tunefree.cli.show import in_words
from tunefree.cli.tables import Answer
from tunefree.errors import ConfigError, FleetError, plain

Add: TypeAlias = Callable[..., None]  # flags.add for one verb


def add_to(command: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(
        name: str, act: Callable[[argparse.Namespace], Answer | int], about: str, **more: Any
    ) -> Add:
        parser = verbs.add_parser(name, help=about)
        parser.set_defaults(act=act, **more)
        flags.add_format(parser)
        return partial(flags.add, parser)

    add = verb("new", new_command, "write a small, complete Flower app to edit")
    add("DIR", "a new folder", Path)
    add("--secure", "with secure sums: the server sees no single update")

    about = "make a node's key for secure sums: FILE for the node alone, FILE.pub for the roster"
    add = verb("identity", identity_command, about)
    add("FILE", "a new file", Path)
    add("--client N", "the node's partition-id", int, required=True)

    about = "write a federation's roster, or show the fingerprint of one, to compare by telephone"
    add = verb("roster", roster_command, about)
    add("FILE", "the roster", Path)
    add("--pub FILE ...", "of all nodes, from `tunefree flower identity`: write a roster", Path)
    add("--federation NAME", "its name, with --pub (default federation)", default="federation")

    about = "run an app once on this machine: start a SuperLink and nodes, stop them after"
    add = verb("up", up_command, about, spelled=plain)
    add("[APP]", "its folder (default .)", Path, Path())
    add("--nodes N", "how many (default 4)", int, 4)
    add("--tls", "use TLS with new certificates")
    add("--auth", "use node keys; other nodes are refused")
    add("--folder DIR", "for keys, logs, clients' states and the run file", Path)
    add("--run-config 'KEY=VALUE ...'", "as for flwr run", default="")
    add("--stock", "use Flower's own nodes, for comparison")
    add("--database", "a SuperLink that still knows the keys after a restart")

    add = verb("node", node_command, "run a node on a client's machine")
    add("--superlink HOST:PORT", "its address", required=True)
    add("--root-certificates FILE", "CA certificate of the server", Path)
    add("--insecure", "without TLS, for a first try")
    key = "this node's private key; its public key is registered with the SuperLink"
    add("--key --auth-supernode-private-key FILE", key, Path)
    add("--node-config 'KEY=VALUE ...'", "as for flower-supernode", default="")
    add("--metrics [HOST:]PORT", "numbers for Prometheus (HOST: 127.0.0.1 unless given)")
    about = "run only apps with these hashes, or with a hash in these files, a hash per line"
    add("--approve HASH ...", about, default=())
    add("--warm", "load torch before the first run starts")

    add = verb("register", register_command, "register nodes' public keys with a SuperLink")
    add("PUB ...", "written by ssh-keygen", Path)
    add("--superlink HOST:PORT", "or its name in the config.toml of `flwr`", required=True)
    add("--root-certificates FILE", "CA certificate of the server", Path)

    about = "the hash of an app, with which the operators of nodes approve it"
    add = verb("hash", hash_command, about)
    add("[APP]", "its folder (default .)", Path, Path())

    about = "who is connected, the round, the time left; fails if something is wrong"
    add = verb("status", status_command, about)
    add("[PLACE]", "run file, or its folder", Path, Path())

    add = verb("metrics", metrics_command, "the status for Prometheus, until Ctrl-C")
    add("[PLACE]", "run file, or its folder", Path, Path())
    add("--metrics [HOST:]PORT", "where (default 127.0.0.1:9464)", default="9464")

    add = verb("backup", backup_command, "copy a server's or a node's folder, while it is used")
    add("PLACE", "its folder", Path)
    add("COPY", "a new folder", Path)

    add = verb("restore", restore_command, "copy a backup back, if nothing is running or newer")
    add("COPY", "the folder of a backup", Path)
    add("PLACE", "where to", Path)


def new_command(args: argparse.Namespace) -> Answer:
    from tunefree.flower.new_app import new_app

    files = [str(file) for file in new_app(args.dir, args.secure)]
    again = f"next: tunefree flower up {shlex.quote(str(args.dir))} --nodes 4 --tls --auth"
    return Answer({"files": files}, [*files, again])


def identity_command(args: argparse.Namespace) -> Answer:
    from tunefree.secure.roster import new_identity, public_file

    public = public_file(args.file, args.client, new_identity(args.file))
    lines = [f"{args.file}: keep it on this machine", f"{public}: for the roster"]
    return Answer({"key": str(args.file), "public": str(public)}, lines)


def roster_command(args: argparse.Namespace) -> Answer:
    from tunefree.secure.roster import new_roster, read_roster

    if args.pub:
        new_roster(args.file, args.federation, args.pub)
    roster = read_roster(args.file)
    lines = [
        f"{args.file}: {len(roster.keys)} clients of '{roster.federation}', fingerprint",
        f"  {roster.fingerprint}",
        "every operator compares all twelve groups, in a call with a voice that is known",
    ]
    return Answer({"fingerprint": roster.fingerprint, "clients": sorted(roster.keys)}, lines)


def up_command(args: argparse.Namespace) -> Answer | int:
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
    given = {name: getattr(args, name) for name in UpOptions._fields}
    options = UpOptions(**given | {"folder": folder})
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
    page = f"next: tunefree report {run.path} -o report.html"
    lines = [*in_words(run), f"  run file {run.path}", page]
    return Answer(run.as_dict(), lines, run.state != "done")


def node_command(args: argparse.Namespace) -> int:
    from tunefree.node import require

    require()
    if args.insecure and (args.root_certificates or args.key):
        raise ConfigError(
            "--insecure cannot be combined with --root-certificates or --key: node keys are of no "
            "use on an unencrypted connection"
        )
    from tunefree.node.apps import hashes_in
    from tunefree.node.pairs import read_pairs
    from tunefree.node.resident import Options, serve

    config = read_pairs("--node-config", args.node_config)
    hashes_in(args.approve)  # a wrong one is refused now
    ca, key = args.root_certificates, args.key
    options = Options(args.superlink, config, args.insecure, ca, key, args.warm, args.approve)
    serve(options, args.metrics)
    return 0


def hash_command(args: argparse.Namespace) -> Answer:
    from tunefree.node import require

    require()
    from tunefree.node.apps import bundle, check

    check(args.app)
    found = hashlib.sha256(bundle(args.app)).hexdigest()
    return Answer({"hash": found}, [found])


def register_command(args: argparse.Namespace) -> Answer:
    from tunefree.node import require

    require()
    from tunefree.node import connection
    from tunefree.node.control import Control
    from tunefree.node.keys import load_public_key

    results = {}
    for key in args.pub:
        load_public_key(key)  # all of them are checked before the first is registered
    where: tuple[str, Path | None, bool] = args.superlink, args.root_certificates, False
    if ":" not in args.superlink:
        where = connection.named(args.superlink)
    with closing(Control(where[0], where[2], where[1])) as control:
        for key in args.pub:
            try:
                results[str(key)] = str(control.register(key))
            except connection.UnreachableError as error:
                raise FleetError(connection.unreachable(error, where[0])) from error
            except connection.KnownKeyError:
                results[str(key)] = (
                    "already registered"
                    if control.registered(key)
                    else "not registered: it was unregistered before, which Flower does not undo; "
                    "make a new key"
                )
            except connection.RefusedError as error:
                results[str(key)] = f"not registered: {error}"
    lines = [f"{key}: {result}" for key, result in results.items()]
    failed = any("not registered" in each for each in results.values())
    return Answer(results, lines, failed)


def status_command(args: argparse.Namespace) -> Answer:
    from tunefree.flower.status import find, readable, status

    with readable(args.place):
        found = status(find(args.place))
        return Answer(found, [*status_lines(found)], failed=not found["ok"])


def backup_command(args: argparse.Namespace) -> Answer:
    from tunefree.flower.backup import backup

    files = backup(args.place, args.copy)
    return Answer({"files": files}, [f"{files} files of {args.place} are in {args.copy}"])


def restore_command(args: argparse.Namespace) -> Answer:
    from tunefree.flower.backup import restore

    files = restore(args.copy, args.place)
    return Answer({"files": files}, [f"{files} files of {args.copy} are in {args.place}"])


def metrics_command(args: argparse.Namespace) -> int:
    from tunefree.flower.metrics import of_server, publish

    server, thread = publish(partial(of_server, args.place), args.metrics)
    print(f"http://{server.server_address[0]}:{server.server_address[1]}/metrics", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        thread.join()
    return 0


def status_lines(found: dict[str, Any]) -> Iterator[str]:
    """The status as text."""
    from tunefree.record import size

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
    privacy = found.get("privacy", {})
    if privacy:
        yield (
            "  privacy: epsilon {spent:.3g} of {epsilon:g} spent, {left:.3g} left at delta "
            "{delta:.2g}".format(**privacy)
        )
    left = privacy.get("participations_left", {})
    evidence = {each["client"]: each for each in found.get("evidence", ())}
    for one in found["clients"]:
        number = "-" if one["client"] is None else one["client"]
        state = one["state"] + (f", {one['late']:.0f} s so far" if "late" in one else "")
        scored = "".join(f", {name} {value:.4f}" for name, value in one.get("scores", {}).items())
        if number in left:
            scored += f", {left[number]} participations left"
        seen = evidence.get(one["client"], {})
        sent = f", {seen['uploads']} uploads, {seen['absent']} refused or missing" if seen else ""
        if seen.get("compared"):
            sent += f", length {seen['length']:.2f}, agreement {seen['agreement']:.2f}"
        yield f"  client {number}, {one['name']}, node {one['node'] or '-'}: {state}{scored}{sent}"
    yield from (f"  {problem}" for problem in found["problems"])
    for node, reason in found.get("refused", {}).items():
        yield f"  node {node} is refused: {reason}"
    for when, what in found["events"][-10:]:
        yield f"  {time.strftime('%H:%M:%S', time.localtime(when))} {what}"
    for client, why in found.get("outliers", {}).items():
        yield f"  client {client} stands apart: {why}"
    for client in found.get("quarantined", ()):
        yield f'  client {client} is in quarantine; to ask it again: readmit = "{client}"'
    for one in found.get("absent", ()):
        yield f"  round {one['round']}, client {one['client']}: {one['why']}"
