"""A federation on this machine: start one SuperLink and its nodes, run apps, and stop them all."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.errors import FleetError
from tunefree.flower.log import Log, exit_text
from tunefree.node.keys import certificates, node_key
from tunefree.node.local import processes
from tunefree.node.local.processes import HOST, STOP, Processes, end_group
from tunefree.node.pairs import written
from tunefree.secure.roster import new_identity, new_roster, public_file

if TYPE_CHECKING:
    from tunefree.node.control import Control, LocalRun

LOG = Log()
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
        secure: bool = False,
    ) -> None:
        if auth and not tls:
            raise FleetError("node keys need TLS; give --tls with --auth")
        for name in ("flower-superlink", *(("flower-supernode", "flwr") if stock else ())):
            processes.program(name)  # or an error, before anything is written or started
        self.folder, self.nodes = folder.resolve(), nodes
        self.tls, self.auth, self.stock, self.database = tls, auth, stock, database
        self.secure = secure
        self.port = processes.free_port()
        self.link: subprocess.Popen[bytes] | None = None
        self.supernodes: dict[int, subprocess.Popen[bytes]] = {}
        self._restarts: dict[int, tuple[int, float]] = {}  # how often, and not again before
        self.folder.mkdir(parents=True, exist_ok=True)
        self._processes = Processes(self.folder)
        if tls:
            certificates(self.folder / "certificates")
        if auth:
            for place in range(nodes):
                node_key(self.key(place))
        if secure and not self.roster.exists():
            keys = [self.key(place).with_suffix(".sums") for place in range(nodes)]
            keys[0].parent.mkdir(exist_ok=True)
            public = [public_file(key, i, new_identity(key)) for i, key in enumerate(keys)]
            new_roster(self.roster, "local", public)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        connection = f'root-certificates = "{self.ca}"' if tls else "insecure = true"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n'
            f'[superlink.{NAME}]\naddress = "{self.address}"\n{connection}\n'
        )

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "certificates" / "ca.crt"

    def key(self, place: int) -> Path:
        return self.folder / "keys" / f"node{place}"

    @property
    def roster(self) -> Path:
        return self.folder / "roster.txt"

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self) -> None:
        """Start the SuperLink and all nodes, and register keys; our nodes retry until admitted."""
        places = range(self.nodes)
        if not self.stock:
            for place in places:
                self.start_node(place)
        self.start_link()
        if self.auth:
            self.register(places)
        if self.stock:
            for place in places:
                self.start_node(place)

    def start_link(self) -> None:
        command = ["flower-superlink", "--host", HOST, "--port", str(self.port)]
        if self.tls:
            command += ["--ssl-ca-certfile", str(self.ca)]
            command += ["--ssl-certfile", str(self.ca.with_name("server.crt"))]
            command += ["--ssl-keyfile", str(self.ca.with_name("server.key"))]
        else:
            command += ["--insecure"]
        command += ["--enable-supernode-auth"] if self.auth else []
        command += ["--database", "state.db"] if self.database else []
        command += ["--disable-runtime-dependency-installation"]
        self.link = self._processes.start("superlink", command, self.port)
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
                command = self._flwr("supernode", "register", str(public), NAME)
                done = subprocess.run(**command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise FleetError(f"flwr did not register {public}: {done.stdout}{done.stderr}")
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

    def start_node(self, place: int, *more: str) -> None:
        """Start a node with this partition-id, and with more arguments."""
        command, port = ["tunefree", "flower", "node", "--warm"], self.port
        if self.stock:
            port = processes.free_port()
            command = ["flower-supernode", "--host", HOST, "--port", str(port)]
        command += ["--superlink", self.address]
        command += ["--root-certificates", str(self.ca)] if self.tls else ["--insecure"]
        if self.auth:
            command += ["--auth-supernode-private-key", str(self.key(place))]
        config: dict[str, Any] = {"partition-id": place, "num-partitions": self.nodes}
        if self.secure:
            key = self.key(place).with_suffix(".sums")
            config |= {"roster": str(self.roster), "roster-key": str(key)}
        command += ["--node-config", written(config), *more]
        self.supernodes[place] = self._processes.start(f"node{place}", command, port)

    def tend(self) -> None:
        """Restart nodes that have ended, at once and then less and less often.

        A stock node that was killed is refused until its last heartbeat has expired.
        """
        for place, process in list(self.supernodes.items()):
            times, when = self._restarts.get(place, (0, 0.0))
            if process.poll() is None or time.monotonic() < when:
                continue
            LOG(f"node {place} ended ({exit_text(process.returncode)}); restarted")
            self._restarts[place] = (times + 1, time.monotonic() + min(2.0**times, 15.0))
            self.start_node(place)

    def run(self, app: Path, config: Mapping[str, Any] = {}) -> LocalRun | StockRun:
        """Run an app, with its log on our standard error."""
        if not self.stock:
            from tunefree.node.control import LocalRun

            return LocalRun(self.control(), app, config)
        words = ["--run-config", written(config)] if config else []
        command = self._flwr("run", str(app.resolve()), NAME, "--stream", *words)
        return StockRun(subprocess.Popen(**command, stdout=sys.stderr))

    def _flwr(self, *words: str) -> dict[str, Any]:
        """How Flower's own command is started, which needs no name that Flower does not publish."""
        environment = processes.environment(self.folder / "home")
        arguments = processes.command_line(["flwr", *words])
        return {"args": arguments, "env": environment, "start_new_session": True}

    def close(self) -> None:
        """Stop all processes."""
        self._processes.end()
        self.supernodes, self.link = {}, None


class StockRun:
    """A run by `flwr run`, for versions of Flower that our own code was not tested with."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> str:
        end_group(self._process.pid, signal.SIGINT)
        try:
            code = self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            end_group(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
        return "" if code == 0 else f"flwr run ended with {code}"
