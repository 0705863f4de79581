"""Read `kubectl get pods|events -o json`: pods into rows of `jobs`, events into lines of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ingest.imports.values import Names, Problems, time_us

_UTC = ZoneInfo("UTC")
_JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "ray.io/cluster",
    "leaderworkerset.sigs.k8s.io/name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
_ATTEMPT_LABELS = ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-retry-count")
_QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name")
_GPU = re.compile(r"(?:nvidia\.com/(?:gpu|mig-.*)|amd\.com/gpu|habana\.ai/gaudi)")
_REASONS = {
    "OOMKilled": "OUT_OF_MEMORY",
    "DeadlineExceeded": "TIMEOUT",
    "NodeLost": "NODE_FAIL",
    "NodeShutdown": "NODE_FAIL",
    "Terminated": "NODE_FAIL",
    "DeletionByTaintManager": "NODE_FAIL",
    "TerminationByKubelet": "NODE_FAIL",
    "Preempting": "PREEMPTED",
    "PreemptionByScheduler": "PREEMPTED",
}
_PHASES = {
    "Pending": "PENDING",
    "Running": "RUNNING",
    "Succeeded": "COMPLETED",
    "Failed": "FAILED",
    "Unknown": "UNKNOWN",
}
# What a job's state is if its pods differ: the first of these.
_WORST = (
    "OUT_OF_MEMORY NODE_FAIL PREEMPTED TIMEOUT FAILED RUNNING PENDING UNKNOWN COMPLETED".split()
)
_REPLICA = re.compile(
    r"(.+)-(?:master|worker|launcher|chief|ps|scheduler|server|head)-(?:\w+-)?(\d+)"
)
_JOBS = re.compile(r".*(?:Job|JobSet|RayCluster)")


class _Ending(NamedTuple):
    """One launch of the containers of a pod."""

    state: str
    reason: str | None
    exit_code: int | None
    signal: int | None
    start: int | None
    end: int | None


def jobs(
    pods: Iterable[tuple[int, dict[str, Any]]],
    cluster: str | None,
    names: Names,
    problems: Problems,
) -> Iterator[dict[str, Any]]:
    """A row a launch of each job; of restarted containers the last two launches are known."""
    launches: dict[tuple[str | None, str, int], list[tuple[dict[str, Any], _Ending]]] = {}
    restarted: dict[tuple[str | None, str], int] = {}
    for number, pod in pods:
        try:
            meta = pod["metadata"]
            labels = meta.get("labels") or {}
            job = _first(labels, _JOB_LABELS) or meta["name"]
            told = _first(labels, _ATTEMPT_LABELS)
            space = meta.get("namespace")
            for attempt, ending in _launches(pod):
                place = int(told) + attempt if told else attempt
                launches.setdefault((space, job, place), []).append((pod, ending))
                restarted[space, job] = max(place, restarted.get((space, job), 0))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problems.add(number, f"item {number}: no pod ({str(error)[:80]})")
    for (space, job, attempt), members in launches.items():
        last = restarted[space, job]
        yield _job(cluster, space, job, attempt if last else None, last, members, names)


def _first(labels: dict[str, str], wanted: Iterable[str]) -> str | None:
    return next((labels[name] for name in wanted if labels.get(name)), None)


def _launches(pod: dict[str, Any]) -> Iterator[tuple[int, _Ending]]:
    """(number, how it ended) of the launches of a pod that are known."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    restarts = max((int(one.get("restartCount", 0)) for one in containers), default=0)
    start = time_us(status.get("startTime") or "", _UTC)
    if restarts:
        ended = [(one.get("lastState") or {}).get("terminated") for one in containers]
        if any(ended):
            yield restarts - 1, _ended("FAILED", None, [one for one in ended if one], None)
        start = None
    conditions = status.get("conditions") or []
    disrupted = (c.get("reason") for c in conditions if c.get("type") == "DisruptionTarget")
    reason = status.get("reason") or next(disrupted, None)
    states = [one.get("state") or {} for one in containers]
    running = [one["running"] for one in states if "running" in one]
    begun = [t for one in running if (t := time_us(one.get("startedAt") or "", _UTC))]
    phase = _PHASES.get(str(status.get("phase")), "UNKNOWN")
    if "running" in (key for one in states for key in one) and phase == "FAILED":
        phase = "RUNNING"
    waiting = next((one["waiting"].get("reason") for one in states if "waiting" in one), None)
    terminated = [one["terminated"] for one in states if "terminated" in one]
    ending = _ended(phase, reason, terminated, min(begun, default=start))
    yield restarts, ending._replace(reason=ending.reason or waiting)


def _ended(
    phase: str, reason: str | None, terminated: list[dict[str, Any]], start: int | None
) -> _Ending:
    bad = [one for one in terminated if one.get("exitCode") or one.get("signal")]
    decisive = next((one for one in bad if one.get("reason") == "OOMKilled"), (bad or [{}])[0])
    why = reason or decisive.get("reason")
    code, signal = decisive.get("exitCode"), decisive.get("signal")
    if signal is None and code is not None and 128 < code < 193:
        signal = code - 128
    times = [time_us(one.get("startedAt") or "", _UTC) for one in terminated]
    ends = [time_us(one.get("finishedAt") or "", _UTC) for one in terminated]
    state = _REASONS.get(str(why), phase) if phase != "COMPLETED" else phase
    return _Ending(
        state,
        why,
        0 if code is None and terminated else code,
        signal,
        min([t for t in (*times, start) if t], default=None),
        max([t for t in ends if t], default=None) if phase not in ("RUNNING", "PENDING") else None,
    )


def _job(
    cluster: str | None,
    space: str | None,
    job: str,
    attempt: int | None,
    restarts: int,
    members: list[tuple[dict[str, Any], _Ending]],
    names: Names,
) -> dict[str, Any]:
    endings = [ending for _, ending in members]
    state = min((ending.state for ending in endings), key=_WORST.index)
    # The first that ended so tells why: the others may have followed it.
    decisive = min(
        (ending for ending in endings if ending.state == state),
        key=lambda ending: ending.end or 1 << 62,
    )
    pods = [pod for pod, _ in members]
    found = {names.host(str(p.get("spec", {}).get("nodeName") or "")) for p in pods}
    hosts = sorted(host for host in found if host)
    labels = pods[0]["metadata"].get("labels") or {}
    created = [time_us(pod["metadata"].get("creationTimestamp") or "", _UTC) for pod in pods]
    starts, ends = [e.start for e in endings if e.start], [e.end for e in endings if e.end]
    gpus = sum(_gpus(pod) for pod in pods)
    placed = any(pod.get("spec", {}).get("nodeName") for pod in pods)
    return {
        "cluster": cluster,
        "job": job,
        "attempt": attempt,
        "name": names.text(job),
        "state": state,
        "exit_code": decisive.exit_code,
        "signal": decisive.signal,
        "nodes": len(hosts) or None,
        "gpus": gpus if placed else None,
        "hosts": hosts or None,
        "submit_ts": min([t for t in created if t], default=None),
        "start_ts": min(starts, default=None),
        "end_ts": max(ends, default=None) if len(ends) == len(endings) else None,
        "source": "k8s",
        "account": names.text(space or ""),
        "partition": names.text(_first(labels, _QUEUE_LABELS) or ""),
        "qos": names.text(str(pods[0].get("spec", {}).get("priorityClassName") or "")),
        "reason": names.text(decisive.reason or ""),
        "requested_gpus": gpus,
        "restarts": restarts,
    }


def _gpus(pod: dict[str, Any]) -> int:
    """GPUs that the containers of a pod ask for."""
    total = 0
    for container in pod.get("spec", {}).get("containers") or ():
        resources = container.get("resources") or {}
        asked = resources.get("limits") or resources.get("requests") or {}
        total += sum(int(value) for name, value in asked.items() if _GPU.fullmatch(name))
    return total


class Told(NamedTuple):
    """What an event says beside its line."""

    line: str
    host: str | None
    job: str | None
    repeats: int
    last: int | None  # µs, of the last of them
    captures: dict[str, str]


def event(item: dict[str, Any]) -> Told:
    """An event as a line that `kubectl get events` would print. Raises KeyError, ValueError."""
    about = item.get("involvedObject") or item.get("regarding") or {}
    series = item.get("series") or {}
    first = item.get("firstTimestamp") or item.get("deprecatedFirstTimestamp")
    last = item.get("lastTimestamp") or series.get("lastObservedTime")
    ts = first or item.get("eventTime") or last or item["metadata"].get("creationTimestamp")
    source = item.get("source") or item.get("deprecatedSource") or {}
    kind, name = str(about.get("kind") or ""), str(about.get("name") or "")
    message = str(item.get("message") or item.get("note") or "")
    words = [str(item["type"]), str(item["reason"]), f"{kind.lower()}/{name}", message]
    line = " ".join(" ".join(words).split())
    replica = _REPLICA.fullmatch(name)
    job = name if _JOBS.fullmatch(kind) else replica[1] if replica and kind == "Pod" else None
    captures = {
        "namespace": about.get("namespace"),
        "object": f"{kind.lower()}/{name}" if name else None,
        "reason": item["reason"],
    }
    return Told(
        f"{ts} {line}" if ts and time_us(ts, _UTC) else line,
        name if kind == "Node" else source.get("host") or None,
        job,
        int(item.get("count") or series.get("count") or item.get("deprecatedCount") or 1),
        time_us(last or "", _UTC),
        {key: str(value) for key, value in captures.items() if value},
    )
