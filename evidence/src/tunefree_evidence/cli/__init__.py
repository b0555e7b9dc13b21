"""`tunefree-evidence`: the challenge, the papers' claims and speed, run on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from tunefree.cli import Parser, act
from tunefree_evidence.cli import bench, challenge, reproduce


def main(argv: Sequence[str] | None = None) -> int:
    top = Parser(prog="tunefree-evidence", description=__doc__)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module, about in (
        ("claims", reproduce, "run and decide the papers' claims"),
        ("challenge", challenge, "untuned methods against tuned ones, on a fixed suite of tasks"),
        ("speed", bench, "measure the speed on this machine"),
    ):
        command = commands.add_parser(name, help=about)
        module.add_to(command)
        command.add_argument(
            "--format", choices=("text", "json"), default="text", help="of the results"
        )
    return act(top.parse_args(argv))
