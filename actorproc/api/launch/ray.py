"""Ray as a launcher: hosts of a store as detached actors of a Ray cluster, spread over its nodes.

Ray decides on which node a host runs, starts it again when the node dies, and scales the cluster by what hosts ask for.
Each actor asks for the processors and GPUs that its steps use. There is no placement group, since Ray leaves detached
actors of a removed group restarting for ever. A name has a place and a run number: Ray does not give the name of a dead
actor again at once. A host counts as started when it has joined the leader; a handle of an actor says nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from actorproc.errors import EngineError, UsageError
from actorproc.model.placement import checked_labels, checked_resources
from actorproc.support.engine_log import engine_logger

__all__ = ["RayHost", "start_hosts", "stop_hosts"]

logger = engine_logger("actorproc")

_NAMESPACE = "actorproc"
_MARK = "ray="
"""Begin of the label by which a host says which actor it is."""
_ANSWERS_WITHIN = 15.0
"""Seconds in which a live actor answers; one that is still to be placed takes as long as it takes."""
_LOOK = 0.25
_THREADS = "OMP_NUM_THREADS"
"""Set by Ray to the processors of an actor; elsewhere libraries choose by themselves."""


class RayHost(msgspec.Struct, frozen=True):
    """A host that Ray runs."""

    actor: str
    """Name of the actor, in its namespace."""
    host: str
    """Name of the host in the leader."""
    address: str


class HostOrder(msgspec.Struct, frozen=True):
    """Order of a host: the procedures it runs, and what it offers."""

    target: str
    path: str
    cpus: int
    labels: tuple[str, ...]
    resources: dict[str, float]
    keeps_threads: bool


class HostActor:
    """One host in an actor of Ray. Drained, it ends the actor for good; failed, it ends the process, for Ray to start.

    Ray gives a detached actor no task when it starts it again, so the host begins with the actor.
    """

    def __init__(self, order: dict[str, Any], name: str) -> None:
        self._order = msgspec.convert(order, HostOrder)
        self._name = name
        threading.Thread(target=self._serve, name="actorproc-host", daemon=True).start()

    def describe(self) -> dict[str, Any]:
        """The order that the actor carries out; its answer says that it lives."""
        return {"name": self._name, "pid": os.getpid(), "order": msgspec.to_builtins(self._order)}

    def leave(self) -> None:
        """End the actor; Ray does not start it again. Possible only in a task of its own."""
        _ray().actor.exit_actor()

    def _serve(self) -> None:
        try:
            reason = _serve_host(self._order, self._name)
        except BaseException:
            logger.exception("the host of the actor %s failed; Ray starts it again", self._name)
            time.sleep(_LOOK)  # for the log to be read by Ray
            os._exit(1)
        logger.info("the host of the actor %s left: %s", self._name, reason)
        _ray().get_runtime_context().current_actor.leave.remote()


def _ray() -> Any:
    """The module `ray`. It takes long to load, and is not there where hosts are started by something else."""
    return importlib.import_module("ray")


def _serve_host(order: HostOrder, name: str) -> str:
    """Run a host until it is drained; why it left."""
    # On the node, and not where it is launched from.
    from actorproc.api.launch.targets import procedures_in  # noqa: PLC0415
    from actorproc.api.manager import ProcedureManager  # noqa: PLC0415

    if not order.keeps_threads:
        os.environ.pop(_THREADS, None)
    if not order.resources.get("gpu"):
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray empties it for actors without GPUs
    manager = ProcedureManager(
        order.path,
        procedures=procedures_in(order.target),
        workers=order.cpus,
        labels=(*order.labels, _MARK + name),
        resources=order.resources,
        lead=False,
    )
    host = manager._make_host()
    host.start()
    return host.wait_until_left(None) or "drained"


# ---------------------------------------------------------------- starting and stopping
def start_hosts(
    target: str,
    path: str,
    *,
    hosts: int,
    cpus: int,
    address: str | None = None,
    labels: Sequence[str] = (),
    resources: Mapping[str, float] | None = None,
    namespace: str = _NAMESPACE,
    timeout: float = 120.0,
    runtime_env: Mapping[str, Any] | None = None,
    keep_threads: bool = False,
) -> list[RayHost]:
    """Have so many hosts run in a Ray cluster, and wait until all have joined the leader.

    Called again it starts only what is missing. With a smaller number the last ones are drained.

    Args:
        target: Module whose procedures run, ``module`` or ``module:attribute``, importable on the nodes.
        path: URL of the store. A password does not belong in it.
        hosts: Number of hosts, at least 1.
        cpus: Processors of each, and number of its workers, at least 1: Ray's autoscaler takes nodes away whose actors
            ask for none.
        address: Address of the Ray cluster, ``host:port`` or ``ray://host:port``. Default: the cluster that this
            program is connected to, by `ray.init`, else the variable ``RAY_ADDRESS``; never one that happens to run.
        labels: Labels that they offer. With ``gpu`` each asks Ray for GPUs. Default: none.
        resources: Resources that they offer; ``gpu`` is asked of Ray, and 1 with the label ``gpu``. Default: none.
        namespace: Namespace of the actors' names. Default: ``"actorproc"``.
        timeout: Seconds to wait for all of them. Default: 120.
        runtime_env: Ray's environment for the actors. Default: none.
        keep_threads: Leave ``OMP_NUM_THREADS`` as Ray sets it. Default: False, steps see what they see elsewhere.

    Returns:
        The hosts, as the leader knows them.

    Raises:
        UsageError: Ray is not installed, there is no address, or a value makes no sense.
        EngineError: Not all have joined in time; the message says how many, and what keeps the others.
    """
    order = _checked_order(target, path, hosts, cpus, labels, resources, keep_threads=keep_threads)
    _check_environment(runtime_env)
    with _connected(address, namespace) as ray:
        names = [_started(ray, order, _prefix(path), place, namespace, runtime_env) for place in range(hosts)]
        surplus = [name for name in _ours(ray, path) if _place_of(name) >= hosts]
        found = _joined(path, names, time.monotonic() + timeout)
        _drain(ray, path, surplus, namespace, timeout)
        return found


def stop_hosts(
    path: str, *, address: str | None = None, namespace: str = _NAMESPACE, timeout: float = 60.0
) -> list[str]:
    """Drain all hosts that `start_hosts` has started for a store, and end their actors.

    Args:
        path: URL of the store.
        address: As for `start_hosts`.
        namespace: As for `start_hosts`.
        timeout: Seconds for running steps to end; then the actors are killed, and the steps run again elsewhere.
            Default: 60.

    Returns:
        Names of the actors.

    Raises:
        UsageError: Ray is not installed, or there is no address.
    """
    with _connected(address, namespace) as ray:
        names = _ours(ray, path)
        _drain(ray, path, names, namespace, timeout)
        return names


def _checked_order(
    target: str,
    path: str,
    hosts: int,
    cpus: int,
    labels: Sequence[str],
    resources: Mapping[str, float] | None,
    *,
    keep_threads: bool,
) -> HostOrder:
    for name, value in (("hosts", hosts), ("cpus", cpus)):
        if type(value) is not int or value < 1:
            msg = f"{name} is {value!r}; it must be a whole number, at least 1"
            raise UsageError(msg)
    if "://" not in path:
        msg = f"{path!r} is a directory; hosts on other machines need a store in a database, postgresql://…"
        raise UsageError(msg)
    try:
        named = checked_labels(labels, "labels=…")
        amounts = dict(checked_resources({} if resources is None else resources, "resources=…"))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if "gpu" in named:
        amounts.setdefault("gpu", 1.0)
    return HostOrder(target, path, cpus, named, amounts, keep_threads)


def _check_environment(runtime_env: Mapping[str, Any] | None) -> None:
    working = (runtime_env or {}).get("working_dir")
    if isinstance(working, str) and (working.startswith("gcs://") or "://" not in working):
        msg = (
            f"runtime_env has the working_dir {working!r}: Ray keeps it only while it is used, and a host that is "
            "started again on another node fails; install the package on the nodes, or in their image"
        )
        raise UsageError(msg)


@contextmanager
def _connected(address: str | None, namespace: str) -> Iterator[Any]:
    """The module `ray`, connected to the cluster; a connection that was made here ends."""
    try:
        ray = _ray()
    except ImportError:
        msg = "Ray is not installed here; install it with: pip install 'actorproc[ray]'"
        raise UsageError(msg) from None
    if ray.is_initialized():
        yield ray
        return
    where = address or os.environ.get("RAY_ADDRESS")
    if not where or where in {"auto", "local"}:
        msg = (
            "there is no address of a Ray cluster; give --ray HOST:PORT (address=…), or set RAY_ADDRESS. It is not "
            "looked for: of several clusters on a machine Ray may choose the wrong one"
        )
        raise UsageError(msg)
    ray.init(address=where, namespace=namespace, log_to_driver=False, logging_level=logging.WARNING)
    try:
        yield ray
    finally:
        ray.shutdown()


# ---------------------------------------------------------------- names
def _prefix(path: str) -> str:
    return f"actorproc-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def _place_of(name: str) -> int:
    return int(name.split("-")[2])


def _run_of(name: str) -> int:
    return int(name.split("-")[3])


def _ours(ray: Any, path: str) -> list[str]:
    """Names of all actors of this store, by place and run."""
    prefix = _prefix(path) + "-"
    names = [name for name in ray.util.list_named_actors() if name.startswith(prefix)]
    return sorted(names, key=lambda name: (_place_of(name), _run_of(name)))


def _started(
    ray: Any,
    order: HostOrder,
    prefix: str,
    place: int,
    namespace: str,
    runtime_env: Mapping[str, Any] | None,
) -> str:
    """Name of the live actor of this place; a dead one is made anew under the next run number."""
    mine = [name for name in ray.util.list_named_actors() if name.startswith(f"{prefix}-{place}-")]
    run = max(map(_run_of, mine), default=0)
    if run:
        name = f"{prefix}-{place}-{run}"
        if _lives(ray, name, namespace, order):
            return name
        _kill(ray, name, namespace)
    options: dict[str, Any] = {
        "namespace": namespace,
        "lifetime": "detached",
        "get_if_exists": True,  # another launcher may do the same just now
        "max_restarts": -1,
        "max_concurrency": 4,
        "num_cpus": order.cpus,
        "num_gpus": order.resources.get("gpu", 0),
        "scheduling_strategy": "SPREAD",
    }
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    name = f"{prefix}-{place}-{run + 1}"
    remote = ray.remote(HostActor)
    remote.options(name=name, **options).remote(msgspec.to_builtins(order), name)
    return name


def _lives(ray: Any, name: str, namespace: str, order: HostOrder) -> bool:
    """True if an actor answers, or is still to be placed by Ray; False when it is dead, or runs something else."""
    try:
        actor = ray.get_actor(name, namespace=namespace)
        said = ray.get(actor.describe.remote(), timeout=_ANSWERS_WITHIN)
    except ray.exceptions.GetTimeoutError:
        return True  # pending, or started again just now; whether it joins is seen in the leader
    except (ValueError, ray.exceptions.RayActorError):
        return False
    return bool(said["order"] == msgspec.to_builtins(order))


def _kill(ray: Any, name: str, namespace: str) -> None:
    try:
        ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)
    except ValueError:
        logger.debug("the actor %s is gone already", name)


# ---------------------------------------------------------------- the leader's word
def _rows(path: str) -> dict[str, tuple[str, str]]:
    """Host and address by actor, of the hosts that have joined the leader."""
    from actorproc.api.client import ProcedureClient  # noqa: PLC0415

    with ProcedureClient(path) as client:
        return {
            label.removeprefix(_MARK): (row.name, row.address)
            for row in client._engine.hosts()
            if row.state == "joined"
            for label in row.labels
            if label.startswith(_MARK)
        }


def _joined(path: str, names: Sequence[str], until: float) -> list[RayHost]:
    """The hosts of these actors, when all have joined the leader. Raises `EngineError` when they have not in time."""
    missing, why = list(names), ""
    while True:
        try:
            rows = _rows(path)
        except EngineError as error:
            rows, why = {}, f"; no leader answers: {error}"
        missing = [name for name in names if name not in rows]
        if not missing:
            return [RayHost(name, *rows[name]) for name in names]
        if time.monotonic() > until:
            msg = (
                f"{len(names) - len(missing)} of {len(names)} hosts have joined the leader{why}; missing: "
                f"{', '.join(missing)}. `ray list actors` tells which wait for a node with room, and then join"
            )
            raise EngineError(msg)
        time.sleep(_LOOK)


def _drain(ray: Any, path: str, names: Sequence[str], namespace: str, timeout: float) -> None:
    """Drain the hosts of these actors by the leader; then end the actors that have not ended."""
    from actorproc.api.client import ProcedureClient  # noqa: PLC0415

    until = time.monotonic() + timeout
    left = list(names)
    try:
        rows = _rows(path) if names else {}
        with ProcedureClient(path) as client:
            for name in names:
                if name in rows:
                    client._engine.drain_host(rows[name][0])
        while left and time.monotonic() < until:
            there = _rows(path)
            left = [name for name in left if name in there]
            time.sleep(_LOOK if left else 0.0)
    except EngineError as error:
        logger.warning("no leader drains the hosts, which are killed: %s", error)
    for name in names:
        _kill(ray, name, namespace)
