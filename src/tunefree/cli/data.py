"""`tunefree data`: list, download and show data sets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.cli import flags
from tunefree.cli.tables import Answer, table
from tunefree.errors import ConfigError
from tunefree.settings import FIELDS, Settings, parse_assignment

if TYPE_CHECKING:
    from tunefree.data.samples import Dataset
    from tunefree.data.sources import Source
    from tunefree.importing import Offer


OF_DATA = {"data_dir", "partition", "clients", "seed"}  # settings that are flags


def add_to(command: argparse.ArgumentParser) -> None:
    verbs = ("list", "get", "show")
    about = (
        "what to do; get downloads a data set, show shows it, and --partition too if it is given"
    )
    command.add_argument("what", choices=verbs, help=about)
    named = "see `tunefree data list`; or your own: X.csv, leaf:FOLDER, package.module:function"
    flags.add(command, "[NAME]", named)
    flags.add_flags(command, without=FIELDS.keys() - OF_DATA)
    flags.add(command, "--out X", "folder of the pictures (default: this one)", Path, Path())
    command.set_defaults(act=data_command)


def data_command(args: argparse.Namespace) -> Answer:
    if args.what == "list":
        return list_data()
    flags.check_out(args.out)
    if args.name is None:
        raise ConfigError(f"`tunefree data {args.what}` needs a NAME; see `tunefree data list`")
    for key, _ in map(parse_assignment, args.set):
        if not key.startswith("data_option."):
            raise ConfigError(
                f"--set {key} is not an option of the data; use data_option.KEY=VALUE"
            )
    from tunefree import derive

    given = flags.given_by(args, without=FIELDS.keys() - OF_DATA)
    chosen = derive.settings(None, {**given, "data": args.name})
    data = derive.named_dataset(chosen)
    return got(data) if args.what == "get" else shown(data, chosen, args)


def list_data() -> Answer:
    """What can be named: ours, and what installed packages offer, each with its package."""
    from tunefree.data.sources import SOURCES, Source
    from tunefree.importing import offers

    rows: list[dict[str, Any]] = [row_of("tunefree", source) for source in SOURCES.values()]
    for offer in offers("data"):
        try:
            found = offer.load()
        except ConfigError as error:
            print(f"note: {error}", file=sys.stderr)
            continue
        ours = isinstance(found, Source)
        rows.append(row_of(offer.package, found) if ours else undescribed(offer))
    available, counts = {True: "yes", False: "no", None: ""}, ("train", "test", "classes")
    cells = [
        (
            row["name"],
            *(f"{row[key]:,}" if row[key] else "-" for key in counts),
            *(row["model"], available[row["here"]], row["package"]),
        )
        for row in rows
    ]
    return Answer(rows, table(("name", *counts, "model", "available", "package"), cells, counts))


def row_of(package: str, source: Source) -> dict[str, Any]:
    """A described data set, and whether it can be loaded without the network."""
    row = source._asdict()
    del row["build"]
    return row | {"here": source.here is None or source.here(None), "package": package}


def undescribed(offer: Offer) -> dict[str, Any]:
    """A function that a package offers: what it returns is not known before it is called."""
    unknown = dict.fromkeys(("train", "test", "classes", "here", "citation", "licence"))
    about = f"what {offer.path} returns"
    return {"name": offer.name, "about": about, "model": "mlp", **unknown, "package": offer.package}


def got(data: Dataset) -> Answer:
    sizes = {"name": data.name, "train": len(data.train), "test": len(data.test)}
    return Answer(sizes, ["{name}: {train:,} train, {test:,} test samples".format(**sizes)])


def shown(data: Dataset, chosen: Settings, args: argparse.Namespace) -> Answer:
    """Its size, examples of its samples, and how a partition distributes them."""
    from tunefree.data.partition import from_spec
    from tunefree.data.samples import heterogeneity
    from tunefree.data.sources import describe
    from tunefree.plots import data as picture

    source = describe(args.name)
    labels = data.train.y.numpy()
    own_clients = None if data.groups is None else len(set(data.groups.tolist()))
    clients = args.clients or (args.partition == "natural" and own_clients) or chosen.clients
    facts: dict[str, Any] = {
        "name": data.name,
        "about": source.about if source else "your own data",
        "train": len(data.train),
        "test": len(data.test),
        "input": list(data.train.input_shape),
        "classes": data.classes,
        "model": data.model,
    }
    if source:
        facts |= {"citation": source.citation, "licence": source.licence}
    if own_clients is not None:
        facts["natural clients"] = own_clients
    stem = Path(data.name).name.replace(":", "-")
    if data.words:
        facts["samples"] = picture.first_words(data)
    elif source and data.classes is not None:
        facts["picture"] = str(picture.draw_samples(data, args.out / f"{stem}-samples.png"))
    if args.partition:
        parts = from_spec(args.partition, labels, clients, chosen.seed, data.groups)
        summary = heterogeneity(parts, labels, data.classes)
        title = f"{data.name}, {args.partition}, {clients} clients"
        path = args.out / f"{stem}-clients.png"
        facts |= {
            "partition": args.partition,
            "smallest client": summary.smallest,
            "median client": summary.median,
            "largest client": summary.largest,
            "classes per client": round(summary.classes_per_client, 2),
            "distance to all": round(summary.distance, 3),
            "clients' picture": str(picture.draw_clients(summary.counts, path, data.names, title)),
        }
    lines = []
    for name, value in facts.items():
        several = [f"{a}: {text} ..." for a, text in value] if name == "samples" else [value]
        lines += [f"{'' if i else name:<18} {each}" for i, each in enumerate(several)]
    return Answer(facts, lines)
