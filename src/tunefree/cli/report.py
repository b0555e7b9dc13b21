"""`tunefree report`: run files as one HTML page and as figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tunefree.errors import ConfigError


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run files, or folders with run files"
    )
    command.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="X.html",
        help="the page (default report.html)",
    )
    command.add_argument("--title", default="", metavar="TEXT", help="of the page")
    command.add_argument(
        "--figures", type=Path, metavar="DIR", help="also write every figure as SVG, PNG and CSV"
    )
    command.set_defaults(act=report_command)


def report_command(args: argparse.Namespace) -> int:
    from tunefree.report.content import content
    from tunefree.report.files import check_not_empty, find
    from tunefree.report.page import page

    if args.out.suffix not in (".html", ".htm"):  # never overwrite a run file given by mistake
        raise ConfigError(f"--out = '{args.out}' must end in .html")
    found = find(args.runs)
    check_not_empty(found)
    report = content(found.runs, found.verdicts, args.title, found.unreadable)
    text = page(report)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--out = '{args.out}' cannot be written ({error.strerror}); choose another path"
        ) from error
    figures: list[Path] = []
    if args.figures is not None:
        from tunefree.plots.runs import write

        figures = write(report, args.figures)
    print(
        json.dumps(summary(report, args.out, figures, found.unreadable))
        if args.format == "json"
        else closing(report, args.out, len(text), figures)
    )
    return 0


def summary(
    report: dict[str, Any], out: Path, figures: list[Path], unreadable: list[Path]
) -> dict[str, Any]:
    return {
        "page": str(out),
        "runs": len(report["runs"]),
        "methods": [method["label"] for each in report["workloads"] for method in each["methods"]],
        "figures": [str(path) for path in figures],
        "unreadable": [str(path) for path in unreadable],
    }


def closing(report: dict[str, Any], out: Path, size: int, figures: list[Path]) -> str:
    lines = [
        report["lead"],
        f"  {out}, {size / 1000:.0f} kB: open it in a browser; it works offline",
    ]
    if figures:
        lines.append(f"  {len(figures)} files of figures in {figures[0].parent}")
    return "\n".join(lines)
