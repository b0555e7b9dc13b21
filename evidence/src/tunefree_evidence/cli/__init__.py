"""`tunefree-evidence`: the challenge, the papers' claims and speed, run on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from tunefree_evidence.cli import bench, challenge, claims, rates
from tunefree_evidence.cli.terminal import Parser, act


def parser() -> Parser:
    top = Parser(prog="tunefree-evidence", description=__doc__)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module, about in (
        ("challenge", challenge, "untuned methods against tuned ones, on a fixed suite of tasks"),
        ("claims", claims, "run and decide the papers' claims"),
        ("bench", bench, "measure our speed against a plain PyTorch loop on this machine"),
        ("rates", rates, "accuracy against the learning rate: the picture of the README"),
    ):
        command = commands.add_parser(name, help=about)
        module.add_to(command)
        command.add_argument(
            "--format", choices=("text", "json"), default="text", help="of the results"
        )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; exit code 0 if done, 1 if failed, 2 for bad usage."""
    return act(parser().parse_args(argv))
