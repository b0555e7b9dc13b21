"""`tunefree export`: a run's history as a table or for TensorBoard, its model as tensors."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.cli import flags
from tunefree.cli.tables import Answer
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.record import Record, Row


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "RUN", "a run file", Path)
    kinds = command.add_mutually_exclusive_group(required=True)
    for usage, (_, about, _) in WRITERS.items():
        flags.add(kinds, usage, about, Path)
    command.set_defaults(act=export_command)


def export_command(args: argparse.Namespace) -> Answer:
    from tunefree.record import Record

    given = {usage: getattr(args, usage.split()[0][2:].replace("-", "_")) for usage in WRITERS}
    usage, path = next((usage, path) for usage, path in given.items() if path is not None)
    write, _, noun = WRITERS[usage]
    with closing(Record.open(args.run)) as record, flags.writing(path):
        count = write(record, path)
    said = [] if str(path) == "-" else [f"{count} {noun} written to {path}"]
    return Answer({"run": str(args.run), "file": str(path), "written": count}, said)


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
        raise ConfigError(f"'{record.path}' contains no model yet: no step was committed")
    facts = record.facts().as_dict()
    about = {key: json.dumps(facts[key]) for key in ("title", "system", "versions") if key in facts}
    needed("safetensors.numpy").save_file(vectors, fresh(path), metadata=about)
    return len(vectors)


def write_state_dict(record: Record, path: Path) -> int:
    """The model's tensors by name and shape, as `model.load_state_dict` takes them."""
    if path.suffix not in (".safetensors", ".pt"):
        raise ConfigError(f"--state-dict = '{path}' must end in .safetensors or .pt")
    from tunefree.derive import state_dict

    state = state_dict(record)
    if path.suffix == ".pt":
        import torch

        torch.save({name: torch.from_numpy(each) for name, each in state.items()}, fresh(path))
    else:
        needed("safetensors.numpy").save_file(state, fresh(path))
    return len(state)


def write_tensorboard(record: Record, path: Path) -> int:
    """Every column of the history against rounds, in a folder that TensorBoard reads."""
    if path.exists() and any(path.iterdir() if path.is_dir() else [path]):
        raise ConfigError(f"'{path}' is not an empty folder and is not changed; choose another")
    writer = needed("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(path))
    columns, rows = table(record)
    for row in rows:
        for name in columns:
            if name != "t" and name in row:
                writer.add_scalar(name, row[name], int(row["t"]) + 1)
    writer.close()
    return len(rows)


def fresh(path: Path) -> Path:
    """The path; refused if it exists or its folder does not."""
    if path.exists():
        raise ConfigError(f"'{path}' exists already and is not overwritten; choose another path")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder '{path.parent}'; create it first")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"'{path}' cannot be written (no permission); choose another path")
    return path


def needed(module: str, extra: str = "export") -> Any:
    """An optional library."""
    try:
        return import_module(module)
    except ImportError as error:
        library = extra if extra != "export" else module.partition(".")[0]
        raise ConfigError(
            f"this needs {library}; install it with: pip install 'tunefree[{extra}]'"
        ) from error


WRITERS: dict[str, tuple[Callable[[Record, Path], int], str, str]] = {  # flag -> what it writes
    "--csv FILE": (write_csv, "the history; - is standard output", "rows"),
    "--parquet FILE": (write_parquet, "the history, with its types", "rows"),
    "--safetensors FILE": (write_safetensors, "the server's vectors, with theta", "vectors"),
    "--state-dict FILE": (write_state_dict, "the model: .safetensors or .pt", "tensors"),
    "--tensorboard DIR": (write_tensorboard, "the history as TensorBoard's event files", "rows"),
}
