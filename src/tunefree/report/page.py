"""The content as one HTML page that needs no other files and no network; or over HTTP, for this
machine only, while its runs are training.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

from tunefree.errors import ConfigError
from tunefree.record import Summary, summarise
from tunefree.report.content import content
from tunefree.report.files import find
from tunefree.report.grouping import Content

HOSTS = ("127.0.0.1", "localhost")
SCRIPTS = ("plots", "tables", "claims", "page")


def page(content: Content, live: bool = False) -> str:
    """The whole page. Its content security policy allows no requests, unless it is live."""
    css, js = part("page.css"), "".join(part(f"{name}.js") for name in SCRIPTS)
    connect = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; style-src '{digest(css)}'; script-src '{digest(js)}'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": html.escape(str(content["title"])),
        "policy": html.escape(policy),
        "live": "yes" if live else "no",
        "css": css,
        "js": js,
        "content": embed(content),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda hole: parts[hole[1]], part("page.html"))


def embed(content: Content) -> str:
    """JSON that is safe inside a script element, whatever the labels contain."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def part(name: str) -> str:
    return resources.files("tunefree.report").joinpath(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """The hash by which a content security policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Watch:
    """The runs at these paths; a file is read again only if it has changed.

    `health` gives lines about those of them that are federations.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        title: str = "",
        health: Callable[[Sequence[Path]], list[str]] = lambda paths: [],
    ) -> None:
        self._paths, self._title, self._health = paths, title, health
        self._known: dict[Path, tuple[object, Summary]] = {}
        self._lock = threading.Lock()

    def __call__(self) -> Content:
        with self._lock:
            now = find(self._paths, self._current)
            made = content(now.runs, now.verdicts, self._title, now.unreadable)
            return made | {"health": self._health([run.path for run in now.runs if run.path])}

    def _current(self, path: Path) -> Summary:
        mark = [stamp(file) for file in (path, path.with_name(f"{path.name}-wal"))]
        known, run = self._known.get(path, (None, None))
        if run is None or known != mark or run.state == "running":  # its writer may have died
            self._known[path] = (mark, summarise(path))
        return self._known[path][1]


def stamp(file: Path) -> tuple[int, int] | None:
    """Changes whenever the file does."""
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def server(watched: Callable[[], Content], port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1, not yet started; port 0 takes a free one."""
    handler = type("PageHandler", (Handler,), {"watched": staticmethod(watched)})
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--port = {port} cannot be used ({error}); choose another, or 0 for a free one"
        ) from error


class Handler(BaseHTTPRequestHandler):
    """Answers GET / and GET /content.json; http.server refuses every other method with 501."""

    watched: Callable[[], Content]

    def do_GET(self) -> None:
        # A page elsewhere may point its own name at 127.0.0.1; a browser then sends that name.
        if self.headers.get("Host", "").partition(":")[0] not in HOSTS:
            return self._answer(403, "text/plain", "this page is only for 127.0.0.1 and localhost")
        if self.path not in ("/", "/content.json"):
            return self._answer(404, "text/plain", "only / and /content.json exist")
        try:
            now = self.watched()
        except ConfigError as error:  # a named file may be half written; the page asks again
            return self._answer(503, "text/plain", str(error))
        if self.path == "/":
            return self._answer(200, "text/html", page(now, live=True))
        return self._answer(200, "application/json", embed(now))

    def _answer(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log the requests of a page that polls."""
