"""A whole federation on this machine: one SuperLink, its SuperNodes, all of it taken down again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tunefree.errors import FleetError
from tunefree.flower.local.certificates import certificates, node_key

HOST = "127.0.0.1"
NAME = "local"  # of the connection in Flower's config
START = 60.0  # seconds for a SuperLink to listen
STOP = 10.0  # seconds for a process to end by itself
REFUSED = "Exit Code: 305"  # a SuperNode's last words: unknown key, or still counted as there


class Local:
    """Start what is asked for in a folder of its own; `close` ends it."""

    def __init__(self, folder: Path, nodes: int, tls: bool = False, auth: bool = False) -> None:
        if auth and not tls:
            raise FleetError("node authentication needs TLS; give --tls with --auth")
        self.folder, self.nodes = folder.resolve(), nodes
        self.tls, self.auth = tls, auth
        self.port = free_port()
        self.link: subprocess.Popen[bytes] | None = None
        self.supernodes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = {self.port}
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
            f'[superlink.{NAME}]\naddress = "{HOST}:{self.port}"\n{secure}\n'
        )

    @property
    def ca(self) -> Path:
        return self.folder / "certificates" / "ca.crt"

    def key(self, place: int) -> Path:
        return self.folder / "keys" / f"node{place}"

    def start(self) -> None:
        """The SuperLink, the nodes' keys, and all SuperNodes."""
        self.start_link()
        if self.auth:
            for place in range(self.nodes):
                self.register(place)
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
        command += ["--database", "state.db", "--disable-runtime-dependency-installation"]
        self.link = self._spawn("superlink", command)
        end = time.monotonic() + START
        while not listening(self.port):
            if self.link.poll() is not None or time.monotonic() > end:
                raise FleetError(f"the SuperLink did not start; see {self.log('superlink')}")
            time.sleep(0.1)

    def register(self, place: int) -> None:
        """Let a node with this key in."""
        public = self.key(place).with_suffix(".pub")
        self._run(["flwr", "supernode", "register", str(public), NAME])

    def start_node(self, place: int) -> None:
        """A SuperNode; one whose last heartbeat still counts is refused, so try until it is not."""
        secure = ["--root-certificates", str(self.ca)] if self.tls else ["--insecure"]
        if self.auth:
            secure += ["--auth-supernode-private-key", str(self.key(place))]
        name = f"node{place}"
        where = f"partition-id={place} num-partitions={self.nodes}"
        command = ["flower-supernode", *secure, "--superlink", f"{HOST}:{self.port}"]
        port = free_port()
        self._ports.add(port)
        command += ["--host", HOST, "--port", str(port), "--node-config", where]
        self.supernodes[place] = self._spawn(name, command)

    def tend(self) -> None:
        """Start again every SuperNode that was refused for a heartbeat that still counts."""
        for place, process in list(self.supernodes.items()):
            if process.poll() is not None and self.refused(place):
                self.start_node(place)

    def refused(self, place: int) -> bool:
        """Whether the SuperLink did not let a SuperNode in, the last time that it was started."""
        *_, last = self.log(f"node{place}").read_text().split("Starting Flower SuperNode")
        return REFUSED in last

    def run(self, app: Path, config: str = "") -> subprocess.Popen[bytes]:
        """`flwr run`, its output to our standard error."""
        command = ["flwr", "run", str(app.resolve()), NAME, "--stream"]
        if config:
            command += ["--run-config", config]
        return subprocess.Popen(
            tool(command), env=self.environment("home"), stdout=sys.stderr, start_new_session=True
        )

    def _run(self, command: list[str], timeout: float = 60) -> str:
        result = subprocess.run(
            tool(command),
            env=self.environment("home"),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if result.returncode:
            raise FleetError(f"{' '.join(command[:3])} failed: {result.stdout}{result.stderr}")
        return result.stdout

    def environment(self, home: str) -> dict[str, str]:
        return os.environ | {
            "FLWR_HOME": str(self.folder / home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """A process of its own group, in its own folder, so that one signal ends all of it."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                tool(command),
                cwd=place,
                env=self.environment(f"{name}/home"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        """End all that was started, politely first."""
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
        """End the SuperLink and its ServerApp at once, as a power cut would."""
        if self.link is not None:
            end_group(self.link, signal.SIGKILL)
            self.link.wait()
        self.end_helpers(signal.SIGKILL, {self.port})

    def end_helpers(self, number: int, ports: Collection[int] = ()) -> None:
        """End what Flower started in sessions of its own; it is known by the port that it uses."""
        mine = [f"--runtime-api-address {HOST}:{port} " for port in ports or self._ports]
        listed = subprocess.run(
            ["ps", "-Awwo", "pid=,args="], capture_output=True, text=True, check=False
        )
        for line in listed.stdout.splitlines():
            if any(words in f"{line} " for words in mine):
                with suppress(ProcessLookupError):
                    os.kill(int(line.split()[0]), number)


def end_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def tool(command: list[str]) -> list[str]:
    """Flower's commands from the environment that this Python runs in."""
    return [str(Path(sys.executable).parent / command[0]), *command[1:]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
