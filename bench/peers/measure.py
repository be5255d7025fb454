"""One run against a server: client processes let go together, their figures and the server's put together."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.child import ROOT
from bench.peers.flow import Flow, Shape
from bench.peers.server import MissingServer, Server

LAYOUTS = {"one process": [["produce", "consume"]], "two processes": [["produce"], ["consume"]]}
CONNECT_S = 30.0
FINISH_S = 45.0


def module_of(peer: str) -> Any:
    """The module of a peer; its client library may not be installed."""
    try:
        return importlib.import_module(f"bench.peers.{peer}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bench"):
            raise
        raise MissingServer(
            f"the Python package {error.name!r} is not installed: pip install -r requirements/bench.txt"
        ) from None


def run(peer: str, server: Server, place: Path, shape: Shape, layout: str) -> dict[str, Any]:
    """A failure is a result too: `{"error": ...}`."""
    module_of(peer).set_up(server.port)
    path = place / "flow"
    path.unlink(missing_ok=True)
    flow = Flow(path, shape)
    parts = LAYOUTS[layout]
    workers = [_start(peer, server.port, roles, part, path, shape) for part, roles in enumerate(parts)]
    try:
        if not flow.until_ready(len(parts), CONNECT_S):
            return {"error": f"not connected after {CONNECT_S:.0f} s: {_complaints(workers)}"}
        server_cpu = server.cpu_s()
        flow.go()
        answers = [_answer(worker, shape.seconds + FINISH_S) for worker in workers]
        server_cpu = server.cpu_s() - server_cpu
        errors = [answer["error"] for answer in answers if "error" in answer]
        if flow.acked != flow.sent or not flow.acked:
            errors.append(
                f"{flow.sent} messages were acknowledged to the senders, {flow.acked} acked by the receivers"
            )
        return {"error": "; ".join(errors)} if errors else _figures(flow, answers, server_cpu, layout)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        flow.close()


def _start(
    peer: str, port: int, roles: list[str], part: int, flow: Path, shape: Shape
) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
    )
    assert worker.stdin is not None
    order = {
        "peer": peer,
        "port": port,
        "roles": roles,
        "part": part,
        "flow": str(flow.resolve()),
        "shape": shape.as_dict(),
    }
    worker.stdin.write(json.dumps(order))
    worker.stdin.close()
    worker.stdin = None
    return worker


def _answer(worker: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    try:
        out, err = worker.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {timeout_s:.0f} s"}
    lines = out.strip().splitlines()
    if worker.returncode or not lines:
        return {"error": err.strip()[-1500:] or f"exit code {worker.returncode}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _complaints(workers: list[subprocess.Popen[str]]) -> str:
    for worker in workers:
        if worker.poll() is None:
            worker.kill()
    return " ".join(worker.communicate()[1].strip()[-700:] for worker in workers)


def _figures(flow: Flow, answers: list[dict[str, Any]], server_cpu: float, layout: str) -> dict[str, Any]:
    messages = flow.acked
    client_us = sum(answer["cpu_s"] for answer in answers) / messages * 1e6
    server_us = server_cpu / messages * 1e6
    found = {
        "batch": flow.shape.batch,
        "size": flow.shape.size,
        "senders": flow.shape.senders,
        "receivers": flow.shape.receivers,
        "layout": layout,
        "messages": messages,
        "seconds": flow.took_s,
        "rate": messages / flow.took_s,
        "client_cpu_us": client_us,
        "server_cpu_us": server_us,
        "cpu_us": client_us + server_us,
    }
    if flow.shape.rate:
        ages = max(answers, key=lambda answer: float(answer["max_ms"]))
        found |= {
            "rate_wanted": flow.shape.rate,
            **{name: ages[name] for name in ("p50_ms", "p99_ms", "max_ms")},
        }
    return found
