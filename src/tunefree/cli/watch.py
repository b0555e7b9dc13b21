"""`tunefree watch`: the report page of runs that are still training, in a browser."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tunefree.cli import flags
from tunefree.errors import ConfigError


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "RUN ...", "run files, or folders with run files", Path)
    flags.add(command, "--port P", "on 127.0.0.1 (default 0: a free one)", int, 0)
    flags.add(command, "--title TEXT", "of the page", default="")
    command.set_defaults(act=watch_command)


def health(paths: Sequence[Path]) -> list[str]:
    """The status of those of these runs that are federations."""
    from tunefree.cli.flower import status_lines
    from tunefree.flower.status import live_path, readable, status

    lines = []
    for path in paths:
        if live_path(path).exists():
            try:
                with readable(path):
                    lines += [line.strip() for line in status_lines(status(path))]
            except ConfigError as error:
                lines.append(str(error))
    return lines


def watch_command(args: argparse.Namespace) -> int:
    from tunefree.report.page import Watch, server

    watched = Watch(args.run, args.title, health)
    watched()  # report a wrong path now, not on the page
    with server(watched, args.port) as serving:
        url = f"http://127.0.0.1:{serving.server_address[1]}/"
        shown = json.dumps({"url": url}) if args.format == "json" else f"{url}  (stop with Ctrl-C)"
        print(shown, flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            serving.server_close()
    print("stopped watching; the runs continue", file=sys.stderr)
    return 0
