"""Commands as pages show them, and what makes each quick enough to be run by a test."""

from __future__ import annotations

import re

FEW = ["--per-round", "2", "--local-steps", "1", "--rounds", "12", "--workers", "1"]
SHORTER = {  # flags to add, by how a command starts; the longest start wins
    "tunefree run": ["--rounds", "21", "--local-steps", "1", "--fleet", "serial"],
    "tunefree run --local-epochs": ["--rounds", "21", "--fleet", "serial"],
    "tunefree run --fleet pool": ["--rounds", "12", "--local-steps", "1"],
    "tunefree run --resume": [],
    "tunefree compare": [*FEW, "--seeds", "0"],
    "tunefree tune": [*FEW, "--grid", "eta=0.1,0.3", "--no-extend"],
    "tunefree sweep": [*FEW, "--seeds", "0"],
    "tunefree-evidence claims": ["--scale", "smoke", "--workers", "1"],
    "tunefree-evidence claims list": [],
    "tunefree-evidence claims evidence": [],
    "tunefree-evidence challenge": [
        *("--scale", "smoke", "--only", "polarfl", "fedavg", "--seeds", "0"),
    ],
}
COMMAND = r"(tunefree(?:-evidence)? .+?)(?: {2,}.*)?$"


def commands(text: str, indent: str = "    ") -> list[str]:
    """The lines of indented blocks that start with one of our programs, continued ones joined."""
    joined = re.sub(r" *\\\n *", " ", text)
    return re.findall(f"^{indent}{COMMAND}", joined, flags=re.MULTILINE)


def shorter(command: str) -> list[str]:
    """What is added to a command so that it takes seconds."""
    starts = [start for start in SHORTER if f"{command} ".startswith(f"{start} ")]
    added = SHORTER[max(starts, key=len)] if starts else []
    if command.startswith("tunefree tune") and "--grid" in command:
        return [*FEW, "--no-extend"]
    return without_steps(added) if "--local-epochs" in command else added


def without_steps(flags: list[str]) -> list[str]:
    """Local epochs take the place of local steps."""
    at = flags.index("--local-steps") if "--local-steps" in flags else len(flags)
    return flags[:at] + flags[at + 2 :]
