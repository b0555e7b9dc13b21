"""`tunefree report`: run files as one HTML page and as figures."""

from __future__ import annotations

import argparse
from pathlib import Path

from tunefree.cli import flags
from tunefree.cli.tables import Answer
from tunefree.errors import ConfigError


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "RUN ...", "run files, or folders with run files", Path)
    page = Path("report.html")
    flags.add(command, "-o --out X.html", "the page (default report.html)", Path, page)
    flags.add(command, "--title TEXT", "of the page", default="")
    flags.add(command, "--figures DIR", "also write every figure as SVG, PNG and CSV", Path)
    command.set_defaults(act=report_command)


def report_command(args: argparse.Namespace) -> Answer:
    from tunefree.report.content import content
    from tunefree.report.files import check_not_empty, find
    from tunefree.report.page import page

    if args.out.suffix not in (".html", ".htm"):  # never overwrite a run file given by mistake
        raise ConfigError(f"--out = '{args.out}' must end in .html")
    found = find(args.run)
    check_not_empty(found)
    report = content(found.runs, found.verdicts, args.title, found.unreadable)
    text = page(report)
    with flags.writing(args.out, "--out = "):
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
    figures: list[Path] = []
    if args.figures is not None:
        from tunefree.plots.runs import write

        with flags.writing(args.figures, "--figures = "):
            figures = write(report, args.figures)
    data = {
        "page": str(args.out),
        "runs": len(report["runs"]),
        "methods": [method["label"] for each in report["workloads"] for method in each["methods"]],
        "figures": [str(path) for path in figures],
        "unreadable": [str(path) for path in found.unreadable],
    }
    size = f"{len(text) / 1000:.0f} kB"
    lines = [report["lead"], f"  {args.out}, {size}: open it in a browser; it works offline"]
    if figures:
        lines.append(f"  {len(figures)} files of figures in {args.figures}")
    return Answer(data, lines)
