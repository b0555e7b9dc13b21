"""The pages of the site that are made from the code, so that they cannot go stale."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from docs.making import changelog
from tunefree import config
from tunefree.cli import parser
from tunefree.conformance.cost import Entry, catalog

ROOT = Path(__file__).parents[2]

WIDE = ("---", "hide: [toc]", "---", "")  # what stands before a page with wide tables
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
        "benchmarks.md": (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8"),
        "deploy.md": sources("Files for a deployment", DEPLOY, "deploy"),
        "examples.md": sources("Examples", examples(), "examples"),
    }


def names_of(groups: Iterable[Sequence[str]]) -> list[str]:
    return [name for names in groups for name in names]


def family(entry: Entry) -> str:
    """Where a method stands in the overview, by what it says of itself."""
    said = entry.about
    if said.paper.startswith("tunefree"):
        return OURS
    if said.paper.startswith("Yan") and not said.family.startswith("ablation"):
        return SIX
    if said.family.startswith("asynchronous"):
        return ASYNCHRONOUS
    return COMPRESSED if "compressed" in said.family else SYNCHRONOUS


def families() -> dict[str, list[str]]:
    """The names of all registered methods, by family."""
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
    return f"{title}\n\n`{name}`: `tunefree run --algorithm {name}`\n{rest}"


def overview() -> str:
    """All methods by family: what each needs tuned and what it costs."""
    entries = {entry.name: entry for entry in catalog()}
    lines = [
        *WIDE,
        "# All methods",
        "",
        "`tunefree algorithms` prints the same. d is the number of model parameters; what is sent "
        "is counted from the messages of a played round, at each method's defaults.",
    ]
    for title, names in families().items():
        lines += ["", f"## {title}", ""]
        head = ("method", "name", "needs tuned", "down", "up", "client remembers", "kind", "paper")
        lines += table(head, [row(entries[name]) for name in names])
    return "\n".join([*lines, ""])


def row(entry: Entry) -> tuple[str, ...]:
    said, price = entry.about, entry.cost
    return (
        f"[{said.title}]({entry.name}.md)",
        f"`{entry.name}`",
        ", ".join(said.grid) or "**nothing**",
        *(vectors(number) for number in (price.down, price.up, price.memory)),
        said.family,
        said.paper,
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
    """The lines of a table; its cells may hold bars, which in code stand as they are.

    >>> table(["a"], [["`x|y` or |"]])[-1]
    '| `x|y` or &#124; |'
    """
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(map(without_bars, line))} |" for line in lines]


def without_bars(cell: str) -> str:
    parts = cell.split("`")
    return "`".join(p if i % 2 else p.replace("|", "&#124;") for i, p in enumerate(parts))


Command = tuple[str, str, argparse.ArgumentParser]  # its words, what it is about, its flags


def commands(
    top: argparse.ArgumentParser | None = None, words: str = "tunefree", about: str = ""
) -> Iterator[Command]:
    """Every command and verb of the command line, each before those below it."""
    top = top or parser()
    yield words, about or (top.description or ""), top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {each.dest: each.help or "" for each in action._choices_actions}
            for name, command in action.choices.items():
                yield from commands(command, f"{words} {name}", said.get(name, ""))


def command_line() -> str:
    """Every command with all that it takes."""
    lines = [
        "# Command line",
        "",
        "Results go to standard output, progress to standard error. Exit code 0 is done, 1 failed, "
        "2 bad usage, 130 interrupted. Flags are written whole. `tunefree COMMAND --help` says the "
        "same.",
    ]
    for words, about, command in commands():
        lines += ["", f"## {words}", "", f"{about[:1].upper()}{about[1:].rstrip('.')}.", ""]
        lines += ["```", usage(words, command), "```", ""]
        rows = [(f"`{called(a)}`", told(a)) for a in arguments(command)]
        lines += table(("argument", "meaning"), rows) if rows else []
    return "\n".join([*lines, ""])


def arguments(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """What a command takes, its help and the commands below it left out."""
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


def told(action: argparse.Action) -> str:
    """What an argument means, and what it is if it is not given."""
    text = action.help or f"one of {', '.join(map(str, action.choices or ()))}"
    usual = action.default
    if "default" in text or not isinstance(usual, str | int | float) or usual in ("", False):
        return text
    return f"{text} (default {usual})"


def settings() -> str:
    """Every setting with its name at every door."""
    names = {key: name for name, key in config.argument_keys().items()}
    lines = [
        *WIDE,
        "# Settings",
        "",
        "One setting, the same at every door: a key of a TOML file (`tunefree run FILE.toml`) and "
        "of `--set`, a flag, an argument of `tunefree.train` and a key of Flower's run config.",
    ]
    for section, cls in config.SECTIONS.items():
        rows = []
        for f in fields(cls):
            key = f"{section}.{f.name}"
            flag, name = f.metadata.get("flag", ""), names.get(key, "")
            if f.name == "options":
                continue
            deployed = name.replace("_", "-") if key in config.DEPLOYED else ""
            rows.append(
                (
                    *(f"`{key}`", f.metadata.get("help", "")),
                    *(code(shown(f.default)), limits(f.metadata)),
                    " ".join(f"`{each}`" for each in flag.split()),
                    *(code(name if key not in COMMAND_ONLY else ""), code(deployed)),
                )
            )
        head = ("key", "meaning", "default", "range", "flag", "in Python", "on Flower")
        lines += ["", f"## {section.capitalize()}", "", *table(head, rows)]
        if section in MORE:
            lines += ["", MORE[section]]
    own = [
        (
            code(f.name.replace("_", "-")),
            f.metadata["help"],
            code(shown(f.default)),
            limits(f.metadata),
        )
        for f in fields(config.Deployment)
    ]
    lines += ["", "## Only on Flower", "", *table(("key", "meaning", "default", "range"), own)]
    return "\n".join([*lines, ""])


COMMAND_ONLY = (
    *("system.N", "data.name", "data.partition", "data.dir"),
    *("model.name", "model.start", "model.lora"),
)
MORE = {
    "algorithm": "Further keys are the method's own options, such as `algorithm.eta`; its "
    "[card](methods/index.md) names them. In Python they are keywords, on Flower `option.NAME`.",
    "data": "Further keys are the data set's own options; see [your own data](data.md). In Python "
    "data are given as they are.",
    "model": "Further keys are arguments of the function that makes the model.",
    "schedule": "In Python these are the fields of `tunefree.Schedule`.",
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
    """The map of the packages, as contributors read it and a test checks it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.sub(r"\A# .*", "# Architecture and contributing", text)


def changes() -> str:
    """The changelog, what is not released yet first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head, mark, older = text.partition("\n## ")
    return f"{head.rstrip()}\n\n{changelog.section('Not yet released')}{mark}{older}"


DEPLOY = """\
How they are used is told in [real federations](flower.md#commands-of-a-real-deployment). The units
were checked with `systemd-analyze verify`; the image has not been built here, for want of a Docker
daemon."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".service": "ini", "": "docker"}


def examples() -> str:
    """What their folder says of them, each with a link to its place below."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8").partition("\n")[2]
    linked = re.sub(r"\]\((\w+)\.py\)", r"](#examples\1py)", text)
    return re.sub(r"\[(\w+\.ipynb)\]\(\1\)", r"\1", linked).strip()


def sources(title: str, about: str, folder: str) -> str:
    """What a folder is about and its files, each below its name; a notebook is only named."""
    lines = [f"# {title}", "", about]
    for path in sorted((ROOT / folder).iterdir()):
        if path.is_file() and path.suffix not in (".md", ".ipynb"):
            text = path.read_text(encoding="utf-8").rstrip()
            block = [f"```{LANGUAGES.get(path.suffix, '')}", text, "```"]
            lines += ["", f"## {folder}/{path.name}", "", *block]
    return "\n".join([*lines, ""])
