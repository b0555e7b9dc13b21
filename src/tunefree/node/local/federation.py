"""A federation on this machine: start one SuperLink and its nodes, and stop them all."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.errors import FleetError
from tunefree.flower.log import Log, exit_text
from tunefree.node.keys import node_key
from tunefree.node.local import processes
from tunefree.node.local.certificates import certificates
from tunefree.node.local.processes import HOST
from tunefree.node.local.runs import LocalRun, StockRun
from tunefree.node.pairs import written

if TYPE_CHECKING:
    from tunefree.node.control import Control

NAME = "local"  # of the connection in Flower's config
START = 60.0  # seconds for a SuperLink to listen


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
            processes.program(name)  # or an error, before anything is written or started
        self.folder, self.nodes = folder.resolve(), nodes
        self.tls, self.auth, self.stock, self.database = tls, auth, stock, database
        self.port = processes.free_port()
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

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

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
        command = ["flower-superlink", "--host", HOST, "--port", str(self.port)]
        if self.tls:
            safe = self.folder / "certificates"
            command += ["--ssl-ca-certfile", str(self.ca)]
            command += ["--ssl-certfile", str(safe / "server.crt")]
            command += ["--ssl-keyfile", str(safe / "server.key")]
        else:
            command += ["--insecure"]
        command += ["--enable-supernode-auth"] if self.auth else []
        command += ["--database", "state.db"] if self.database else []
        command += ["--disable-runtime-dependency-installation"]
        self.link = self._spawn("superlink", command)
        end = time.monotonic() + START
        while not processes.listening(self.port):
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
        from tunefree.node.connection import RefusedError, UnreachableError

        with closing(self.control()) as control:
            for public in publics:
                try:
                    control.register(public)
                except (RefusedError, UnreachableError) as error:
                    raise FleetError(
                        f"the SuperLink did not register {public.name} ({error}); see "
                        f"{self.log_file('superlink')}"
                    ) from error

    def control(self) -> Control:
        """A connection to the SuperLink's control API."""
        from tunefree.node.control import Control

        return Control(self.address, not self.tls, self.ca if self.tls else None)

    def start_node(self, place: int) -> None:
        """Start a node with this partition-id."""
        command = ["tunefree", "flower", "node", "--warm"]
        if self.stock:
            port = processes.free_port()
            self._ports.add(port)
            command = ["flower-supernode", "--host", HOST, "--port", str(port)]
        command += ["--superlink", self.address]
        command += ["--root-certificates", str(self.ca)] if self.tls else ["--insecure"]
        if self.auth:
            command += ["--auth-supernode-private-key", str(self.key(place))]
        command += ["--node-config", f"partition-id={place} num-partitions={self.nodes}"]
        self.supernodes[place] = self._spawn(f"node{place}", command)

    def tend(self) -> None:
        """Restart nodes that have ended, at once and then less and less often.

        A stock node that was killed is refused until its last heartbeat has expired.
        """
        for place, process in list(self.supernodes.items()):
            times, when = self._restarts.get(place, (0, 0.0))
            if process.poll() is None or time.monotonic() < when:
                continue
            self._log(f"node {place} ended ({exit_text(process.returncode)}); restarted")
            self._restarts[place] = (times + 1, time.monotonic() + min(2.0**times, 15.0))
            self.start_node(place)

    def run(self, app: Path, config: Mapping[str, Any] = {}) -> LocalRun | StockRun:
        """Run an app, with its log on our standard error."""
        if not self.stock:
            return LocalRun(self.control(), app, config)
        command = ["flwr", "run", str(app.resolve()), NAME, "--stream"]
        command += ["--run-config", written(config)] if config else []
        return StockRun(
            subprocess.Popen(
                processes.command_line(command),
                env=processes.environment(self.folder / "home"),
                stdout=sys.stderr,
                start_new_session=True,
            )
        )

    def _run(self, command: list[str], timeout: float = 60) -> None:
        name = " ".join(command[:3])
        try:
            result = subprocess.run(
                processes.command_line(command),
                env=processes.environment(self.folder / "home"),
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FleetError(f"{name} did not end within {timeout:.0f} s") from None
        if result.returncode:
            raise FleetError(f"{name} failed: {result.stdout}{result.stderr}")

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        folder = self.folder / name
        return processes.spawn(
            command, folder, self.log_file(name), processes.environment(folder / "home")
        )

    def close(self) -> None:
        """Stop all processes."""
        everything = [*self.supernodes.values(), *([self.link] if self.link else [])]
        processes.end_all(everything, self._ports)
        self.supernodes, self.link = {}, None
