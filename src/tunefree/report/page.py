"""The content as one HTML page that needs no other files and no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources

from tunefree.report.grouping import Content

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
