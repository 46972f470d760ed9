"""`survives_deploy`: a test that new code parks nothing, over an export of the store that runs the old code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from actorproc.api.deploys.deploy_check import examined
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.encoding.signing import SigningKey
from actorproc.procedure.runtime.engine_side import TypeRegistry
from actorproc.report.deploy_report import DeployReport
from actorproc.report.schema.export import read_export
from actorproc.store.memory import MemoryStore
from actorproc.store.tools.transfer import bring_in

__all__ = ["DidNotSurviveDeploy", "survives_deploy"]


class DidNotSurviveDeploy(AssertionError):
    """Procedures would be parked; the message names them by type, step and reason.

    Attributes:
        report: the whole `DeployReport`.
    """

    def __init__(self, report: DeployReport) -> None:
        lines = [
            f"{found.count} × {found.type_name} at step {found.step} "
            f"({', '.join(found.ids)}{', …' if found.count > len(found.ids) else ''}) "
            f"{'when undone' if found.verdict == 'parks-when-undone' else 'at once'}: {found.reason}"
            for found in report.parks
        ]
        super().__init__("\n".join(["the deploy would park", *lines]))
        self.report = report


def survives_deploy(
    procedures: Iterable[type | ProcedureFunction[..., Any]],
    export: str | os.PathLike[str],
    *,
    signing_key: SigningKey | None = None,
    check: bool = True,
) -> DeployReport:
    """Read every unfinished procedure of an export with these classes, and run none of them.

    Keep exports of procedures at every step beside the tests (``actorproc export --all --reveal --out FILE``). The test
    fails when an edit would park a procedure stored before it. Fields that an export left out are unknown, and do not
    fail the test.

    Args:
        procedures: The classes and `procedure` functions, with what they `uses`.
        export: The file that ``actorproc export`` wrote.
        signing_key: The key, or keys, of the store that was exported; classes with ``codec = "pickle"`` need it.
            Default: none.
        check: Raise when something would be parked; else only report it. Default: True.

    Returns:
        A `DeployReport` of the procedures that go on and those that would be parked.

    Raises:
        DidNotSurviveDeploy: A procedure would be parked.
        UsageError: The file is no export, or a class cannot be run, or needs a signing key.
    """
    registry = TypeRegistry(signing_key=signing_key)
    for procedure_class in procedures:
        registry.register(procedure_class)
    store = MemoryStore()
    epoch = store.own()
    bring_in(store, read_export(os.fspath(export)), lambda writes: store.commit(writes, epoch))
    report = examined(store, registry.get, registry.names())
    if check and not report.ok:
        raise DidNotSurviveDeploy(report)
    return report
