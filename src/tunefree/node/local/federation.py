"""A federation on this machine: start one SuperLink and its nodes, and stop them all."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tunefree.errors import ConfigError, FleetError
from tunefree.flower.log import TIME, Log, without_colours
from tunefree.node.local.certificates import certificates, node_key
from tunefree.node.local.run import LocalRun, StockRun, end_group
from tunefree.node.versions import require

if TYPE_CHECKING:
    from tunefree.node.private import Control

HOST = "127.0.0.1"
NAME = "local"  # of the connection in Flower's config
START = 60.0  # seconds for a SuperLink to listen
STOP = 10.0  # seconds for a process to end by itself
REFUSED = "Exit Code: 305"  # of a SuperNode with an unknown key, or one still counted as connected


class Local:
    """One SuperLink and its nodes, with all their files in one folder; `close` stops them.

    Its nodes are ours, or Flower's own if `stock`. The SuperLink has its state in memory unless
    `database`: a run resumes from its run file in any case, but only a SuperLink with a database
    still knows its nodes' keys after a restart.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        tls: bool = False,
        auth: bool = False,
        *,
        stock: bool = False,
        database: bool = False,
    ) -> None:
        if auth and not tls:
            raise FleetError("node keys need TLS; give --tls with --auth")
        for name in ("flower-superlink", *(("flower-supernode", "flwr") if stock else ())):
            program(name)  # or an error, before anything is written or started
        self.folder, self.nodes = folder.resolve(), nodes
        self.tls, self.auth, self.stock, self.database = tls, auth, stock, database
        self.port = free_port()
        self.link: subprocess.Popen[bytes] | None = None
        self.supernodes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = {self.port}
        self._restarts: dict[int, tuple[int, float]] = {}  # how often, and not again before
        self._log = Log()
        self.folder.mkdir(parents=True, exist_ok=True)
        if tls:
            certificates(self.folder / "certificates")
        if auth:
            for place in range(nodes):
                node_key(self.key(place))
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        secure = f'root-certificates = "{self.ca}"' if tls else "insecure = true"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n'
            f'[superlink.{NAME}]\naddress = "{self.address}"\n{secure}\n'
        )

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "certificates" / "ca.crt"

    def key(self, place: int) -> Path:
        return self.folder / "keys" / f"node{place}"

    def start(self) -> None:
        """Start the SuperLink and all nodes, and register keys; our nodes retry until admitted."""
        if not self.stock:
            self._start_nodes()
        self.start_link()
        if self.auth:
            self.register(range(self.nodes))
        if self.stock:
            self._start_nodes()

    def _start_nodes(self) -> None:
        for place in range(self.nodes):
            self.start_node(place)

    def start_link(self) -> None:
        safe = self.folder / "certificates"
        secure = (
            [
                *("--ssl-ca-certfile", str(self.ca)),
                *("--ssl-certfile", str(safe / "server.crt")),
                *("--ssl-keyfile", str(safe / "server.key")),
            ]
            if self.tls
            else ["--insecure"]
        )
        auth = ["--enable-supernode-auth"] if self.auth else []
        command = ["flower-superlink", *secure, *auth, "--host", HOST, "--port", str(self.port)]
        command += ["--database", "state.db"] if self.database else []
        command += ["--disable-runtime-dependency-installation"]
        self.link = self._spawn("superlink", command)
        end = time.monotonic() + START
        while not listening(self.port):
            if self.link.poll() is not None or time.monotonic() > end:
                raise FleetError(f"the SuperLink did not start; see {self.log_file('superlink')}")
            time.sleep(0.1)

    def register(self, places: Iterable[int]) -> None:
        """Register these nodes' keys with the SuperLink."""
        publics = [self.key(place).with_suffix(".pub") for place in places]
        if self.stock:
            for public in publics:
                self._run(["flwr", "supernode", "register", str(public), NAME])
            return
        private = require()
        with closing(self.control()) as control:
            for public in publics:
                try:
                    control.register(public)
                except (private.RefusedError, private.UnreachableError) as error:
                    raise FleetError(
                        f"the SuperLink did not register {public.name} ({error}); see "
                        f"{self.log_file('superlink')}"
                    ) from error

    def control(self) -> Control:
        """A connection to the SuperLink's control API."""
        control: Control = require().Control(
            self.address, not self.tls, self.ca if self.tls else None
        )
        return control

    def start_node(self, place: int) -> None:
        """Start a node with this partition-id."""
        secure = ["--root-certificates", str(self.ca)] if self.tls else ["--insecure"]
        if self.auth:
            secure += ["--auth-supernode-private-key", str(self.key(place))]
        config = ["--node-config", f"partition-id={place} num-partitions={self.nodes}"]
        own = ["tunefree", "flower", "node", "--warm"]
        if self.stock:
            port = free_port()
            self._ports.add(port)
            own = ["flower-supernode", "--host", HOST, "--port", str(port)]
        command = [*own, *secure, "--superlink", self.address, *config]
        self.supernodes[place] = self._spawn(f"node{place}", command)

    def tend(self) -> None:
        """Restart nodes that have ended, at once and then less and less often.

        A stock node that was killed is refused until its last heartbeat has expired.
        """
        for place, process in list(self.supernodes.items()):
            times, when = self._restarts.get(place, (0, 0.0))
            if process.poll() is None or time.monotonic() < when:
                continue
            if not self.refused(place):
                self._log(f"node {place} ended ({exit_text(process.returncode)}); restarted")
            self._restarts[place] = (times + 1, time.monotonic() + min(2.0**times, 15.0))
            self.start_node(place)

    def refused(self, place: int) -> bool:
        """Whether a stock SuperNode was refused, the last time that it was started."""
        *_, last = self.log_file(f"node{place}").read_text().split("Starting Flower SuperNode")
        return REFUSED in last

    def run(self, app: Path, config: str = "") -> LocalRun | StockRun:
        """Run an app, with its log on our standard error."""
        if not self.stock:
            return LocalRun(self.control(), app, require().parse_config("--run-config", config))
        command = ["flwr", "run", str(app.resolve()), NAME, "--stream"]
        if config:
            command += ["--run-config", config]
        return StockRun(
            subprocess.Popen(
                command_line(command),
                env=self.environment("home"),
                stdout=sys.stderr,
                start_new_session=True,
            )
        )

    def _run(self, command: list[str], timeout: float = 60) -> str:
        name = " ".join(command[:3])
        try:
            result = subprocess.run(
                command_line(command),
                env=self.environment("home"),
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FleetError(f"{name} did not end within {timeout:.0f} s") from None
        if result.returncode:
            raise FleetError(f"{name} failed: {result.stdout}{result.stderr}")
        return result.stdout

    def environment(self, home: str) -> dict[str, str]:
        beside = str(Path(sys.executable).parent)
        return os.environ | {
            "FLWR_HOME": str(self.folder / home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]),
        }

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a process in its own folder and group, so that one signal ends all of it."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        process = subprocess.Popen(
            command_line(command),
            cwd=place,
            env=self.environment(f"{name}/home"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.log_file(name).touch()  # it can be read at once, before the first line comes
        copying = (process, self.log_file(name), command[0] != "tunefree")
        threading.Thread(target=copy_log, args=copying, daemon=True).start()
        return process

    def close(self) -> None:
        """Stop all processes: SIGTERM first, then SIGKILL."""
        processes = [*self.supernodes.values(), *([self.link] if self.link else [])]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                end_group(process, number)
            self.end_helpers(number)
            end = time.monotonic() + STOP
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, end - time.monotonic()))
        self.supernodes, self.link = {}, None

    def kill_link(self) -> None:
        """Kill the SuperLink and its ServerApp at once, as a power cut would."""
        if self.link is not None:
            end_group(self.link, signal.SIGKILL)
            self.link.wait()
        self.end_helpers(signal.SIGKILL, {self.port})

    def end_helpers(self, number: int, ports: Collection[int] = ()) -> None:
        """Stop the processes that Flower started in other sessions, found by the port they use."""
        mine = [f"--runtime-api-address {HOST}:{port} " for port in ports or self._ports]
        for pid, arguments in processes():
            if any(words in f"{arguments} " for words in mine):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def copy_log(process: subprocess.Popen[bytes], path: Path, stamped: bool) -> None:
    """Write a process's output to its log, without colours; with the time if `stamped`."""
    assert process.stdout is not None
    with process.stdout as output, path.open("a", encoding="utf-8") as log:
        for line in output:
            text = without_colours(line.decode(errors="replace"))
            log.write(f"{time.strftime(TIME)} {text}" if stamped else text)
            log.flush()


def exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


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


def processes() -> Iterator[tuple[int, str]]:
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
