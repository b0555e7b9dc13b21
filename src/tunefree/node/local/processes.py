"""The processes of a federation on this machine: start, log, find and end them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from filelock import FileLock, Timeout

from tunefree.errors import ConfigError
from tunefree.flower.log import Log, stamped, without_colours

HOST = "127.0.0.1"
LIST = "processes.json"  # what was started in a folder, while it may still run
STOP = 10.0  # seconds for a process to end by itself
LOG_SIZE, OLD_LOGS = 10_000_000, 3  # bytes of a log, and how many older ones are kept


class Processes:
    """The processes that were started in a folder, which lists them for a later start.

    Each has a folder, a log and a process group of its own, so that one signal ends all of it. What
    an earlier process started there and left when it was killed is ended at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, FileLock(folder / "federation.lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ConfigError(
                f"--folder '{folder}' belongs to a federation that is running; stop that one, or "
                "choose another folder"
            ) from None
        self._list = folder / LIST
        if left := self._end_left():
            Log()(f"ended what a killed federation had left in {folder}: {left} process(es)")
        self._started: list[subprocess.Popen[bytes]] = []
        self._commands: dict[int, str] = {}  # by process
        self._ports: set[int] = set()

    def start(self, name: str, command: list[str], port: int) -> subprocess.Popen[bytes]:
        """Start a command of ours or of Flower's; its helpers are found by its port."""
        folder, words = self.folder / name, command_line(command)
        folder.mkdir(exist_ok=True)
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment(folder / "home"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._started.append(process)
        self._commands[process.pid] = " ".join(words)
        self._ports.add(port)
        self._list.write_text(json.dumps([self._commands, sorted(self._ports)]))
        log = self.folder / f"{name}.log"
        log.touch()  # it can be read at once, before the first line comes
        theirs = command[0] != "tunefree"  # our lines have their time already
        threading.Thread(target=copy_log, args=(process, log, theirs), daemon=True).start()
        return process

    def _end_left(self) -> int:
        """End the listed processes whose number and command are the same; returns how many."""
        try:
            commands, ports = json.loads(self._list.read_text())
            there = [
                pid
                for pid, words in running()
                if str(pid) in commands and commands[str(pid)] in words
            ]
        except (OSError, ValueError, TypeError, LookupError):
            return 0
        end_all(there, ports)
        return len(there)

    def end(self) -> None:
        """End all processes, and Flower's helpers."""
        end_all([process.pid for process in self._started], self._ports)
        for process in self._started:
            process.wait()
        self._list.unlink(missing_ok=True)
        self._lock.release()


def copy_log(process: subprocess.Popen[bytes], path: Path, theirs: bool) -> None:
    """Write a process's output to its log, without colours; with the time if it is not ours.

    A log that is full is renamed to .1, and so on, and the oldest is deleted.
    """
    assert process.stdout is not None
    log = RotatingFileHandler(path, maxBytes=LOG_SIZE, backupCount=OLD_LOGS, encoding="utf-8")
    with process.stdout as output, closing(log):
        for line in output:
            text = without_colours(line.decode(errors="replace")).rstrip("\n")
            log.emit(logging.makeLogRecord({"msg": stamped(text, path.stem) if theirs else text}))


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


def end_all(
    groups: Collection[int],
    ports: Collection[int],
    signals: Sequence[int] = (signal.SIGTERM, signal.SIGKILL),
) -> None:
    """End these process groups, and what Flower started in other sessions for these ports."""
    mine = [f"--runtime-api-address {HOST}:{port} " for port in ports]
    helpers = {pid for pid, words in running() if any(each in f"{words} " for each in mine)}
    for number in signals:
        for group in groups:
            end_group(group, number)
        for helper in helpers:
            with suppress(ProcessLookupError):
                os.kill(helper, number)
        end = time.monotonic() + STOP
        while time.monotonic() < end and dict(running()).keys() & {*groups, *helpers}:
            time.sleep(0.05)


def end_group(group: int, number: int) -> None:
    """Send a signal to a process and all that it started in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def running() -> Iterator[tuple[int, str]]:
    """The number and the arguments of every process; small images have /proc, but no ps."""
    if Path("/proc/self/cmdline").exists():
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended since
                words = (folder / "cmdline").read_bytes().decode(errors="replace")
                if words:  # none if it has ended, and was not waited for
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
