"""The pages of the site that are generated from the code, so that they cannot go stale."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from docs.making import changelog, links
from tunefree.cli import parser
from tunefree.cli.flags import names_of as names_of_flags
from tunefree.methods.registry import REGISTRY
from tunefree.settings import FIELDS, TABLES, Deployment
from tunefree.testing.cost import Entry, entries
from tunefree_evidence.cli import parser as evidence_parser

ROOT = Path(__file__).parents[2]

WIDE = ("---", "hide: [toc]", "---", "")  # the front matter of a page with wide tables
OURS = "Ours, the default"
SIX = "The papers' tuning-free and asynchronous methods"
SYNCHRONOUS = "Synchronous baselines"
COMPRESSED = "Compressed baselines"
ASYNCHRONOUS = "Asynchronous baselines"


def made() -> dict[str, str]:
    """Every page that is not written by hand, by its name on the site."""
    cards = {f"methods/{name}.md": card(name) for name in names_of(families().values())}
    return {
        **cards,
        "methods/index.md": overview(),
        "cli.md": command_line(),
        "settings.md": settings(),
        "architecture.md": architecture(),
        "changelog.md": changes(),
        "benchmarks.md": (ROOT / links.BENCHMARKS / "README.md").read_text(encoding="utf-8"),
        "deploy.md": sources("Files for a deployment", DEPLOY, "deploy"),
        "examples.md": sources("Examples", examples(), "examples"),
    }


def names_of(groups: Iterable[Sequence[str]]) -> list[str]:
    return [name for names in groups for name in names]


def family(entry: Entry) -> str:
    """The family of a method in the overview, from its `about`."""
    about = entry.about
    if about.paper.startswith("tunefree"):
        return OURS
    if about.paper.startswith("Yan") and not about.family.startswith("ablation"):
        return SIX
    if about.family.startswith("asynchronous"):
        return ASYNCHRONOUS
    return COMPRESSED if "compressed" in about.family else SYNCHRONOUS


def catalog() -> list[Entry]:
    """Our methods, and those of the evidence."""
    return [entry for entry in entries() if isinstance(entry, Entry)]


def families() -> dict[str, list[str]]:
    """The names of all methods, by family."""
    groups: dict[str, list[str]] = {
        title: [] for title in (OURS, SIX, SYNCHRONOUS, COMPRESSED, ASYNCHRONOUS)
    }
    for entry in catalog():
        groups[family(entry)].append(entry.name)
    return groups


def card(name: str) -> str:
    """A method's card, and its name for the command line and for the search."""
    text = (ROOT / "cards" / f"{name}.md").read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    where = "" if name in REGISTRY else ", where [the evidence](../reproduce.md) is installed"
    return f"{title}\n\n`{name}`: `tunefree run --algorithm {name}`{where}\n{rest}"


def overview() -> str:
    """All methods by family: what must be tuned, and what each costs."""
    found = {entry.name: entry for entry in catalog()}
    lines = [
        *WIDE,
        "# All methods",
        "",
        "`tunefree methods` prints the same. d is the number of model parameters; traffic is "
        "counted from the messages of one round, with each method's defaults.",
    ]
    for title, names in families().items():
        lines += ["", f"## {title}", ""]
        head = ("method", "name", "to tune", "down", "up", "client state", "kind", "paper")
        lines += table(head, [row(found[name]) for name in names])
    return "\n".join([*lines, ""])


def row(entry: Entry) -> tuple[str, ...]:
    about, price = entry.about, entry.cost
    return (
        f"[{about.title}]({entry.name}.md)",
        f"`{entry.name}`",
        ", ".join(about.grid) or "**nothing**",
        *(vectors(number) for number in (price.down, price.up, price.memory)),
        about.family,
        about.paper,
    )


def vectors(number: float) -> str:
    """
    >>> vectors(2.0), vectors(0.0664), vectors(0), vectors(0.002)
    ('2d', '0.066d', '-', 'a few numbers')
    """
    if number < 0.01:
        return "a few numbers" if number else "-"
    text = f"{number:.2g}"
    return "d" if text == "1" else f"{text}d"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; its cells may contain bars, which are not escaped in code.

    >>> table(["a"], [["`x|y` or |"]])[-1]
    '| `x|y` or &#124; |'
    """
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(map(without_bars, line))} |" for line in lines]


def without_bars(cell: str) -> str:
    parts = cell.split("`")
    return "`".join(p if i % 2 else p.replace("|", "&#124;") for i, p in enumerate(parts))


Command = tuple[str, str, argparse.ArgumentParser]  # its words, its help, its parser


def commands(
    top: argparse.ArgumentParser | None = None, words: str = "tunefree", about: str = ""
) -> Iterator[Command]:
    """Every command and verb of the command line, each before those below it."""
    top = top or parser()
    yield words, about or (top.description or ""), top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for name, command in action.choices.items():
                yield from commands(command, f"{words} {name}", helps.get(name, ""))


def command_line() -> str:
    """Every command with all its arguments."""
    lines = [
        "# Command line",
        "",
        "Results go to standard output, progress to standard error. Exit codes: 0 done, 1 failed, "
        "2 bad usage, 130 interrupted. Flags cannot be abbreviated. `tunefree COMMAND --help` "
        "prints the same.",
    ]
    for words, about, command in (*commands(), *commands(evidence_parser(), "tunefree-evidence")):
        lines += ["", f"## {words}", "", f"{about[:1].upper()}{about[1:].rstrip('.')}.", ""]
        lines += ["```", usage(words, command), "```", ""]
        rows = [(f"`{called(a)}`", meaning(a)) for a in arguments(command)]
        lines += table(("argument", "meaning"), rows) if rows else []
    return "\n".join([*lines, ""])


def arguments(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a command, without its help and its subcommands."""
    kinds = (argparse._HelpAction, argparse._SubParsersAction)
    return [action for action in command._actions if not isinstance(action, kinds)]


def usage(words: str, command: argparse.ArgumentParser) -> str:
    marks = {"?": "[{}]", "+": "{} [{} ...]", "*": "[{} ...]"}
    below = [str(a.metavar) for a in command._actions if isinstance(a, argparse._SubParsersAction)]
    places = [
        marks.get(str(action.nargs), "{}").replace("{}", called(action))
        for action in arguments(command)
        if not action.option_strings
    ]
    must = [called(a) for a in arguments(command) if a.option_strings and a.required]
    return " ".join([words, *places, *must, *below, "[flags]"])


def called(action: argparse.Action) -> str:
    """An argument as it is typed."""
    names = " or ".join(action.option_strings)
    if action.nargs == 0:
        return names
    choices = "|".join(map(str, action.choices or ()))
    value = str(action.metavar or choices or action.dest)
    value += " ..." if names and action.nargs == "+" else ""
    return f"{names} {value}".strip()


def meaning(action: argparse.Action) -> str:
    """What an argument means, and its default."""
    text = action.help or f"one of {', '.join(map(str, action.choices or ()))}"
    usual = action.default
    if "default" in text or not isinstance(usual, str | int | float) or usual in ("", False):
        return text
    return f"{text} (default {usual})"


def section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of settings with its title, and what else there is to know."""
    if not rows:
        return []
    more = ["", MORE[title]] if title in MORE else []
    return ["", f"## {title}", "", *table(head, rows), *more]


def settings() -> str:
    """Every setting with its name at every entry point."""
    lines = [
        *WIDE,
        "# Settings",
        "",
        "Every setting has one name: in TOML files (`tunefree run FILE.toml`), for `--set`, in "
        "Python and in Flower's run config. Its flag is this name with dashes.",
    ]
    head = ("name", "meaning", "default", "range", "flag", "in Python", "on Flower")
    rows, title = list[tuple[str, ...]](), ""
    for name, f in FIELDS.items():
        if name in TITLES:
            lines += section(title, head, rows)
            rows, title = [], TITLES[name]
        if name in TABLES:
            continue
        rows.append(
            (
                *(f"`{name}`", f.metadata["help"], code(shown(f.default)), limits(f.metadata)),
                " ".join(f"`{flag}`" for flag in names_of_flags(name)),
                "" if name in COMMAND_ONLY or not f.metadata["flag"] else "yes",
                "yes" if f.metadata["deployed"] else "",
            )
        )
    lines += section(title, head, rows)
    own = [
        (
            code(f.name),
            f.metadata["help"],
            code(shown(f.default)),
            limits(f.metadata),
        )
        for f in fields(Deployment)
    ]
    lines += ["", "## Flower only", "", *table(("key", "meaning", "default", "range"), own)]
    return "\n".join([*lines, ""])


TITLES = {  # the first setting below each title
    "clients": "Federation",
    "algorithm": "Method",
    "data": "Data",
    "model": "Model",
    "schedule": "Schedule",
    "seed": "Run",
}
COMMAND_ONLY = (
    *("clients", "data", "partition", "data_dir"),
    *("model", "start", "lora"),
)
MORE = {
    "Method": "A method's own options are `option.NAME`, such as `option.eta`: a table `[option]` "
    "in a file. Its [card](methods/index.md) names them. In Python they are keywords.",
    "Data": "A data set's own options are `data_option.NAME`; see [your own data](data.md). In "
    "Python data are passed directly.",
    "Model": "Arguments of the function that makes the model are `model_option.NAME`.",
    "Schedule": "In Python these are the fields of `tunefree.Schedule`.",
}


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def shown(value: object) -> str:
    """
    >>> shown(True), shown(0.0), shown("")
    ('true', '0', '')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def limits(metadata: object) -> str:
    get: Callable[[str], float | None] = getattr(metadata, "get", lambda _: None)
    least, below = get("least"), get("below")
    text = "" if least is None else f"≥ {least:g}"
    return text if below in (None, float("inf")) else f"{text}, < {below:g}"


def architecture() -> str:
    """The table of modules, as contributors read it and a test checks it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.sub(r"\A# .*", "# Architecture and contributing", text)


def changes() -> str:
    """The changelog, unreleased changes first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head, mark, older = text.partition("\n## ")
    return f"{head.rstrip()}\n\n{changelog.section('Unreleased')}{mark}{older}"


DEPLOY = """\
[Real federations](flower.md#commands-of-a-real-deployment) explains how to use them. Tests run a
federation through the proxy, and check the units with `systemd-analyze` and the manifests with
their schemas; the image has not been built here, because there was no Docker daemon."""
LANGUAGES = {
    ".py": "python",
    ".conf": "nginx",
    ".json": "json",
    ".yaml": "yaml",
    ".service": "ini",
    "": "docker",
}


def examples() -> str:
    """The table of the examples' README, with links to the sources below it."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8").partition("\n")[2]
    linked = re.sub(r"\]\((\w+)\.py\)", r"](#examples\1py)", text)
    return re.sub(r"\[(\w+\.ipynb)\]\(\1\)", r"\1", linked).strip()


def sources(title: str, about: str, folder: str) -> str:
    """An introduction and the files of a folder, each below its name, without notebooks."""
    lines = [f"# {title}", "", about]
    for path in sorted((ROOT / folder).iterdir()):
        if path.is_file() and path.suffix not in (".md", ".ipynb", ".txt"):
            text = path.read_text(encoding="utf-8").rstrip()
            block = [f"```{LANGUAGES.get(path.suffix, '')}", text, "```"]
            lines += ["", f"## {folder}/{path.name}", "", *block]
    return "\n".join([*lines, ""])
