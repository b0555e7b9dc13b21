"""Numbers of a federation's server or of a node, for Prometheus, on a port of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tunefree.errors import ConfigError

Numbers: TypeAlias = Mapping[str, float | Mapping[str, float]]  # by name, and by label
SERVER = {
    "ok": "1 if nothing is wrong, as `tunefree flower status` decides it",
    "round": "rounds done",
    "rounds": "rounds of the run",
    "round_seconds": "seconds of a round, over the last ten",
    "left_seconds": "seconds that the run still takes",
    "sent_bits_total": "bits sent so far, by direction",
    "score": "the last accuracy and loss, by name",
    "clients": "clients by state",
    "nodes_refused": "nodes that are connected and refused",
    "clients_quarantined": "clients that are not asked because of their uploads",
    "replies_missing": "replies that were missing or refused in the last ten rounds",
    "disk_free_bytes": "free space where the run file is",
}
NODE = {
    "node_connected": "1 if the SuperLink answers and knows this node",
    "node_jobs_total": "jobs done since the node started",
    "node_job_seconds_total": "seconds that they took together",
    "node_failures_total": "jobs that failed since then: no app, or a worker that ended",
    "node_runs": "runs that this node works for",
}
LABELS = {"sent_bits_total": "direction", "score": "name", "clients": "state"}


class Numbered:
    """What Prometheus asks for the numbers of now."""

    def __init__(self, read: Callable[[], Numbers]) -> None:
        self._read = read

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, value in self._read().items():
            label = [LABELS[name]] if name in LABELS else []
            about = (SERVER | NODE)[name]
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(f"tunefree_{name}", about, labels=label)
            for key, number in value.items() if isinstance(value, Mapping) else [("", value)]:
                family.add_metric([key] * len(label), number)
            yield family


def publish(read: Callable[[], Numbers], where: str) -> Any:
    """Answer at http://HOST:PORT/metrics from a thread; returns the server and the thread."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise ConfigError(
            "prometheus-client is not installed; install it: pip install 'tunefree[ops]'"
        ) from None
    host, _, port = where.rpartition(":")
    registry = CollectorRegistry()
    registry.register(Numbered(read))
    try:
        return start_http_server(int(port), host or "127.0.0.1", registry)
    except (ValueError, OSError, OverflowError) as error:
        raise ConfigError(f"--metrics '{where}' is not a free [HOST:]PORT ({error})") from error


def of_server(place: Path) -> Numbers:
    """The numbers of the run that is at this place now; only `ok` if there is none."""
    from tunefree.flower.status import find, readable, status

    try:
        with readable(place):
            return numbers(status(find(place)))
    except ConfigError:
        return {"ok": 0}


def numbers(now: Mapping[str, Any]) -> Numbers:
    """The numbers in a status."""
    some = {
        "round": now["round"],
        "rounds": now["rounds"],
        "round_seconds": now.get("seconds_per_round"),
        "left_seconds": now.get("seconds_left"),
    }
    return {
        "ok": float(now["ok"]),
        **{name: value for name, value in some.items() if value is not None},
        "sent_bits_total": {kind: now.get(f"bits_{kind}", 0) for kind in ("up", "down")},
        "score": {name: now[name] for name in ("accuracy", "loss") if name in now},
        "clients": Counter(str(each["state"]) for each in now["clients"]),
        "nodes_refused": len(now.get("refused", ())),
        "clients_quarantined": len(now.get("quarantined", ())),
        "replies_missing": len(now.get("absent", ())),
        "disk_free_bytes": now["disk_free"],
    }
