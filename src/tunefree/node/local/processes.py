"""The processes of a federation on this machine: start, log, find and end them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tunefree.errors import ConfigError
from tunefree.flower.log import TIME, without_colours

HOST = "127.0.0.1"
STOP = 10.0  # seconds for a process to end by itself


def spawn(
    command: list[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process in a folder and group of its own, so that one signal ends all of it."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        command_line(command),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    log.touch()  # it can be read at once, before the first line comes
    stamped = command[0] != "tunefree"  # whose lines have their time already
    threading.Thread(target=copy_log, args=(process, log, stamped), daemon=True).start()
    return process


def copy_log(process: subprocess.Popen[bytes], path: Path, stamped: bool) -> None:
    """Write a process's output to its log, without colours; with the time if `stamped`."""
    assert process.stdout is not None
    with process.stdout as output, path.open("a", encoding="utf-8") as log:
        for line in output:
            text = without_colours(line.decode(errors="replace"))
            log.write(f"{time.strftime(TIME)} {text}" if stamped else text)
            log.flush()


def environment(home: Path) -> dict[str, str]:
    """What Flower's programs and ours are started with; `home` is where they install apps."""
    beside = str(Path(sys.executable).parent)
    return os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]),
    }


def command_line(command: list[str]) -> list[str]:
    """A command of ours or of Flower's, with the full path of its program."""
    if command[0] == "tunefree":
        return [sys.executable, "-m", "tunefree.cli", *command[1:]]
    return [program(command[0]), *command[1:]]


def program(name: str) -> str:
    """The path of one of Flower's programs: beside this Python, or else on PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise ConfigError(
            f"Flower's program '{name}' is neither beside {sys.executable} nor on PATH; install "
            f"it: {sys.executable} -m pip install 'tunefree[flower]'"
        )
    return found


def end_all(processes: Iterable[subprocess.Popen[bytes]], ports: Collection[int]) -> None:
    """End these processes and Flower's helpers on these ports: SIGTERM first, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            end_group(process, number)
        end_helpers(number, ports)
        end = time.monotonic() + STOP
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))


def end_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end_helpers(number: int, ports: Collection[int]) -> None:
    """Send a signal to what Flower started in other sessions, found by the ports that it uses."""
    mine = [f"--runtime-api-address {HOST}:{port} " for port in ports]
    for pid, arguments in running():
        if any(words in f"{arguments} " for words in mine):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def running() -> Iterator[tuple[int, str]]:
    """The number and the arguments of every process; small images have /proc, but no ps."""
    if Path("/proc/self/cmdline").exists():
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended since
                words = (folder / "cmdline").read_bytes().decode(errors="replace")
                yield int(folder.name), words.replace("\0", " ")
        return
    listed = subprocess.run(
        ["ps", "-Awwo", "pid=,args="], capture_output=True, text=True, check=False
    )
    for line in listed.stdout.splitlines():
        pid, _, arguments = line.strip().partition(" ")
        yield int(pid), arguments


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
