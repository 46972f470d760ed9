"""A Ray cluster of three nodes on this machine, with hosts on two of them: a program that ends with its controller.

It has a temporary directory and ports of its own, so another cluster on this machine is neither joined nor harmed.
The head has no room for hosts. Each other node has room for both, so that one takes over when the other dies.

::

    stdout: one line of JSON when all hosts have joined, with the process of each node that may be killed
    stdin: its end means that all is to be ended and removed
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any

from actorproc.api.launch.ray import start_hosts
from actorproc.cli.demo_app.service import PROCEDURES

__all__ = ["main"]

_STARTED_WITHIN = 120.0
_HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
"""A node that is dead is noticed within seconds."""


def main(arguments: list[str] | None = None) -> int:
    """Run the cluster until the end of stdin."""
    parser = argparse.ArgumentParser(prog="python -m actorproc.cli.demo_app.ray_nodes")
    parser.add_argument("--store", required=True)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    options = parser.parse_args(arguments)
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray's words go to the log
    nodes = _started(options.hosts * options.workers)
    try:
        how = {"hosts": options.hosts, "cpus": options.workers, "address": nodes.address}
        start_hosts(PROCEDURES, options.store, **how, timeout=_STARTED_WITHIN)
        print(json.dumps({"nodes": [_raylet(node) for node in nodes.worker_nodes]}), file=told, flush=True)
        while os.read(sys.stdin.fileno(), 1):
            pass
    finally:
        nodes.shutdown()
    return 0


def _started(room: int) -> Any:
    """The nodes."""
    head = {"num_cpus": 0, "include_dashboard": False, "dashboard_agent_listen_port": None, "_system_config": _HEALTH}
    nodes: Any = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=room)
    except BaseException:
        nodes.shutdown()
        raise
    return nodes


def _raylet(node: Any) -> int:
    """The process that is a node."""
    return int(node.all_processes["raylet"][0].process.pid)


if __name__ == "__main__":
    sys.exit(main())
