"""`tunefree export`: a run's history as CSV or Parquet, its model as safetensors."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from contextlib import closing, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.record import Record, Row


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, metavar="RUN", help="a run file")
    kinds = command.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--csv", type=Path, metavar="FILE", help="the history; - is standard output")
    kinds.add_argument("--parquet", type=Path, metavar="FILE", help="the history, with its types")
    kinds.add_argument(
        "--safetensors", type=Path, metavar="FILE", help="the server's vectors, theta among them"
    )
    command.set_defaults(act=export_command)


def export_command(args: argparse.Namespace) -> int:
    from tunefree.record import Record

    with closing(Record.open(args.run)) as record:
        if args.csv is not None:
            path, count = args.csv, write_csv(record, args.csv)
        elif args.parquet is not None:
            path, count = args.parquet, write_parquet(record, args.parquet)
        else:
            path, count = args.safetensors, write_safetensors(record, args.safetensors)
    if args.format == "json":
        print(json.dumps({"run": str(args.run), "file": str(path), "written": count}))
    elif str(path) != "-":
        print(f"{count} {'vectors' if args.safetensors else 'rows'} written to {path}")
    return 0


def table(record: Record) -> tuple[list[str], list[Row]]:
    """The history with all its columns, in the order in which they first appear."""
    rows = record.history()
    return list(dict.fromkeys(name for row in rows for name in row)), rows


def write_csv(record: Record, path: Path) -> int:
    columns, rows = table(record)
    with (
        nullcontext(sys.stdout)
        if str(path) == "-"
        else fresh(path).open("w", newline="", encoding="utf-8")
    ) as stream:
        file = csv.DictWriter(stream, columns)
        file.writeheader()
        file.writerows(rows)
    return len(rows)


def write_parquet(record: Record, path: Path) -> int:
    pyarrow, parquet = needed("pyarrow"), needed("pyarrow.parquet")
    columns, rows = table(record)
    data = {name: [row.get(name) for row in rows] for name in columns}
    parquet.write_table(pyarrow.table(data), fresh(path))
    return len(rows)


def write_safetensors(record: Record, path: Path) -> int:
    vectors = record.vectors()
    if not vectors:
        raise ConfigError(f"'{record.path}' holds no model yet: no step was committed")
    facts = record.facts().as_dict()
    about = {key: json.dumps(facts[key]) for key in ("title", "system", "versions") if key in facts}
    needed("safetensors.numpy").save_file(vectors, fresh(path), metadata=about)
    return len(vectors)


def fresh(path: Path) -> Path:
    """The path, once nothing would be overwritten and its folder is there."""
    if path.exists():
        raise ConfigError(f"'{path}' exists already and is left as it is; choose another path")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder '{path.parent}'; make it first")
    return path


def needed(module: str) -> Any:
    """A library of the extra `export`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this needs {module.partition('.')[0]}; install it with: pip install "
            "'tunefree[export]'"
        ) from error
