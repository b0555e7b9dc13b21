"""Without what only Linux has, or what Windows lacks, everything but real federations works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TAKEN_AWAY = {
    "macOS": (["os.memfd_create", "os.sched_getaffinity"], ["resource"]),
    "Windows": (
        [
            *("os.memfd_create", "os.sched_getaffinity", "os.fork", "os.forkpty", "os.killpg"),
            *(
                "os.getuid",
                "os.getpgid",
                "os.setsid",
                "select.poll",
                "signal.SIGKILL",
                "signal.SIGHUP",
            ),
        ],
        ["fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"],
    ),
}
SCRIPT = """
import builtins, os, pathlib, platform, select, signal, sys, warnings
import ctypes

functions, modules = {taken!r}
for name in functions:
    module, _, attribute = name.partition(".")
    if hasattr(globals()[module], attribute):
        delattr(globals()[module], attribute)
for name in modules:
    sys.modules[name] = None
platform.system = lambda: {system!r}

given = open
def refusing(path, *more, **named):
    if str(path).startswith(("/proc", "/sys", "/dev/shm")):
        raise FileNotFoundError(path)
    return given(path, *more, **named)
builtins.open = refusing

import torch
import tunefree
from tunefree.cli import main

warnings.simplefilter("error")
warnings.filterwarnings("ignore", "only soft file lock")
X = [torch.randn(20, 3, generator=torch.Generator().manual_seed(i)) for i in range(4)]
clients = [(x, x.argmax(1)) for x in X]
settings = dict(rounds=3, local_steps=2, progress=False)

def model():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 3)

whole = tunefree.train(model(), clients, clients[0], **settings | dict(rounds=5))
run = tunefree.train(model(), clients, clients[0], out="a.sqlite", fleet="serial", **settings)
run = tunefree.resume("a.sqlite", model(), clients, clients[0], rounds=5, progress=False)
assert run.theta_sha256 == whole.theta_sha256
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pool = tunefree.train(model(), clients, fleet="pool", workers=1, **settings | dict(rounds=5))
print("FLEET", pool.record.facts().fleet, *(each.message for each in caught))
assert pool.theta_sha256 == whole.theta_sha256
small = ["--rounds", "2", "--local-steps", "1", "--clients", "4"]
assert main(["run", *small, "--out", "b.sqlite", "--fleet", "serial"]) == 0
assert main(["run", "--resume", "b.sqlite", "--rounds", "4"]) == 0
assert main(["show", "b.sqlite", "--clients"]) == 0
assert main(["compare", "polarfl", "fedavg:eta=0.1", *small, "--seeds", "0", "--workers", "1"]) == 0
assert main(["report", "a.sqlite", "b.sqlite", "-o", "all.html"]) == 0
assert pathlib.Path("all.html").stat().st_size > 1000
"""


@pytest.mark.parametrize("system", TAKEN_AWAY)
def test_what_others_lack_is_not_needed(system: str, tmp_path: Path) -> None:
    code = SCRIPT.format(taken=TAKEN_AWAY[system], system=system)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (fleet,) = (line for line in done.stdout.splitlines() if line.startswith("FLEET"))
    lacks_processes = "processes here cannot inherit open files, so there is no pool of workers"
    assert fleet == "FLEET pool" or fleet.startswith(f"FLEET serial {lacks_processes}")
    assert fleet.startswith("FLEET serial") == (system == "Windows")
