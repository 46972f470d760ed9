"""`Tracing`: the option of a manager that has its work recorded by the OpenTelemetry SDK of the program."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from actorproc.errors import UsageError
from actorproc.model.messages.events import Event, ForkRequested, Published, RestartRequested, Signalled, Submitted
from actorproc.model.rows.records import NewProcedure, Trace
from actorproc.model.trace_context import CONTEXT, is_sampled
from actorproc.support import trace_scope
from actorproc.support.engine_log import engine_logger

if TYPE_CHECKING:
    from pathlib import Path

    from actorproc.telemetry.recorder import Recorder

__all__ = ["Tracing"]

logger = engine_logger("actorproc")

_ROOTS = ("child", "link")


class Tracing:
    """Has procedures, attempts and waits recorded as spans: ``ProcedureManager(…, tracing=Tracing())``.

    It needs the extra ``otel``, which is the API. The SDK is the program's: its settings decide where spans go, and
    which traces are sampled.

    Args:
        provider: A ``TracerProvider`` of the SDK. Default: None, the global one, whichever it is at the time.
        roots: The place of a root. ``"child"``: below the current span of the submitter, in its trace.
            ``"link"``: each root is a trace of its own, with a link to that span. Default: ``"child"``.

    Raises:
        UsageError: OpenTelemetry cannot be imported.
        ValueError: ``roots`` is no such word.
    """

    def __init__(self, provider: Any = None, *, roots: Literal["child", "link"] = "child") -> None:
        if roots not in _ROOTS:
            msg = f"roots is 'child' or 'link', not {roots!r}"
            raise ValueError(msg)
        try:
            from actorproc.telemetry.provider import HostTracer  # noqa: PLC0415 - the extra may be absent
        except ImportError as error:
            msg = f"tracing needs OpenTelemetry: pip install 'actorproc[otel]' ({error})"
            raise UsageError(msg) from error
        self._roots = roots
        self._tracer = HostTracer(provider, version("actorproc"))
        self._dropped = 0
        self._has_failed = False

    def __repr__(self) -> str:
        return f"<Tracing roots={self._roots!r}>"

    @property
    def dropped(self) -> int:
        """Number of spans that were dropped here; the SDK counts for itself what its own queues drop."""
        return self._dropped

    def _count_dropped(self, spans: int) -> None:
        self._dropped += spans

    def _recorder(self, folder: Path | None) -> Recorder:
        """A recorder for one engine, not started. `folder` is the directory of the store; None: it has none."""
        from actorproc.telemetry.recorder import Recorder  # noqa: PLC0415 - only a started manager needs it

        return Recorder(self._tracer.record, self._count_dropped, folder)

    def _entered(self, event: Event) -> Event:
        """A request with its place in a trace. On the thread of the caller, whose context it is."""
        if isinstance(event, Submitted):
            here = trace_scope.current()
            try:
                return replace(event, procedures=tuple(self._traced(new, here) for new in event.procedures))
            except Exception as error:  # noqa: BLE001 - samplers are code of the host
                self._fail(error)
                return replace(event, procedures=tuple(replace(new, trace=None) for new in event.procedures))
        if isinstance(event, RestartRequested | ForkRequested):
            return self._entered_anew(event)
        if isinstance(event, Signalled | Published) and not event.trace:
            here = trace_scope.current()
            return replace(event, trace=here[:CONTEXT]) if here else event
        return event

    def _entered_anew(self, event: RestartRequested | ForkRequested) -> Event:
        (submitted,) = self._entered(Submitted((event.new,), event.reply)).procedures  # type: ignore[union-attr]
        return replace(event, new=submitted)

    def _traced(self, new: NewProcedure, here: bytes) -> NewProcedure:
        above = new.trace.context if new.trace is not None else here
        links = (above[:CONTEXT],) if above and self._roots == "link" else ()
        context = self._tracer.sampled(
            f"actorproc.procedure {new.type_name}",
            b"" if links else above,
            links,
            {"actorproc.procedure.type": new.type_name, "actorproc.procedure.id": new.id},
        )
        # Nothing is stored of a trace that is not recorded: with 1 % sampled, that would cost the other 99 % the most.
        return replace(new, trace=Trace(context, links=b"".join(links)) if is_sampled(context) else None)

    def _fail(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.warning(
                "OpenTelemetry could not be asked about a trace, and what is submitted now is not traced: %s: %s",
                type(error).__name__,
                error,
            )
