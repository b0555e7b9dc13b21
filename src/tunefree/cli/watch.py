"""`tunefree watch`: the report page of runs that are still training, in a browser."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tunefree.cli import flags


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "RUN ...", "run files, or folders with run files", Path)
    flags.add(command, "--port P", "on 127.0.0.1 (default 0: a free one)", int, 0)
    flags.add(command, "--title TEXT", "of the page", default="")
    command.set_defaults(act=watch_command)


def watch_command(args: argparse.Namespace) -> int:
    from tunefree.report.page import Watch, server

    watched = Watch(args.run, args.title)
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
