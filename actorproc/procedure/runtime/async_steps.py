"""Steps of asynchronous classes: what `TypeRuntime.run` does with a plain step, with everything awaited."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Answered, Failed, Finished, Outcome, Refused, StepRequests
from actorproc.procedure.authoring.async_context import AsyncContext, called
from actorproc.procedure.authoring.context import Context, StopStep
from actorproc.procedure.authoring.procedure import Procedure, refuse_unrun
from actorproc.procedure.authoring.step_requests import Describer
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.encoding.value_codec import ValueCodec
from actorproc.procedure.values.error_text import OF_USERS
from actorproc.procedure.values.members import hook

__all__ = ["AsyncRuntime", "run_async", "run_to_end", "tell_failed_abort", "tell_failed_clean_up"]

Ended = tuple[Outcome, tuple[type, ...]]


class AsyncRuntime(Describer, Protocol):
    """The parts of `TypeRuntime` that steps of both kinds share."""

    type_name: str
    values: ValueCodec
    _has_position: bool
    _recovers: bool
    _cleans_up: bool

    def dump_state(self, procedure: Procedure, id: str = "") -> bytes: ...
    def _searched(self, live: Procedure) -> StepRequests | None: ...
    def failed(self, error: BaseException, ctx: Context, mode: Mode, live: Procedure) -> Failed: ...
    def _settled(self, live: Procedure, ctx: Context, mode: Mode) -> Ended | None: ...
    def _undone(self, live: Procedure, ctx: Context, unit: str, status: object) -> Outcome: ...
    def _missed(self, ctx: Context) -> Outcome: ...
    def _outcome(self, live: Procedure, ctx: Context, status: object) -> Ended: ...


async def run_async(
    runtime: AsyncRuntime, live: Procedure, ctx: AsyncContext, mode: Mode, unit: str | None, event: bytes | None
) -> Ended:
    """Run one step of an asynchronous class, of its own runtime. As `TypeRuntime.run`."""
    if runtime._has_position:
        ctx._live = live
    ctx._runtime = runtime
    try:
        await ctx._prepare()
        if ctx._around is None:
            ended = await _ran(runtime, live, ctx, mode, unit, event)
        else:
            ended = await ctx._around(ctx, lambda: _ran(runtime, live, ctx, mode, unit, event))
    except StopStep:
        raise
    except StateRefused as error:
        ended = Refused(reason=error.reason), ()
    except BaseException as error:  # noqa: BLE001 - every exception of user code is an outcome, a cancellation included
        ended = runtime.failed(error, ctx, mode, live), ()
    ctx._runtime = None
    if ctx._unreadable is not None:
        return Refused(reason=ctx._unreadable[0], needs=ctx._unreadable[1]), ()
    return ended if ctx._requests is None else ctx._requests.added_to(*ended)


async def _ran(
    runtime: AsyncRuntime, live: Procedure, ctx: AsyncContext, mode: Mode, unit: str | None, event: bytes | None
) -> Ended:
    if event is not None:
        ctx._take_event(event, runtime.values)
    if runtime._has_position and mode in (Mode.EXECUTE, Mode.ON_TIMEOUT) and live._engine_is_moved():
        early = runtime._settled(live, ctx, mode)
        if early is not None:
            return early
    if mode is Mode.ASK_ABORT:
        return await _asked(runtime, live, ctx), ()
    is_recovering = runtime._recovers and (ctx.replayed or ctx.recovered)
    if is_recovering:
        refuse_unrun(await called(hook(type(live), "before_recover"), live, ctx), "before_recover()")
    status: Any
    if mode is Mode.EXECUTE:
        status = await live._engine_execute_async(ctx)
    elif mode is Mode.ROLLBACK:
        status = await live._engine_undo_async(ctx, unit or "")
    else:
        status = await live._engine_on_timeout_async(ctx)
    if is_recovering:
        refuse_unrun(await called(hook(type(live), "after_recover"), live, ctx), "after_recover()")
    if mode is Mode.ROLLBACK:
        return runtime._undone(live, ctx, unit or "", status), ()
    if mode is Mode.ON_TIMEOUT and status is None:
        return runtime._missed(ctx), ()
    outcome, classes = runtime._outcome(live, ctx, status)
    if runtime._cleans_up and type(outcome) is Finished:  # last, as after a plain step
        after = await _cleaned_up(runtime, live, ctx)
        outcome = replace(outcome, state=after[0], requests=after[1]) if after is not None else outcome
    return outcome, classes


async def _asked(runtime: AsyncRuntime, live: Procedure, ctx: AsyncContext) -> Outcome:
    with tell_failed_abort(ctx, runtime.type_name):
        return Answered(allowed=bool(await called(hook(type(live), "abort"), live, ctx)))


async def _cleaned_up(
    runtime: AsyncRuntime, live: Procedure, ctx: AsyncContext
) -> tuple[bytes, StepRequests | None] | None:
    """The state after `on_completed`, and what it is found by; None when that failed, or it cannot be kept."""
    after = None
    with tell_failed_clean_up(ctx, runtime.type_name):
        refuse_unrun(await called(hook(type(live), "on_completed"), live, ctx), "on_completed()")
        after = runtime.dump_state(live, ctx.id), runtime._searched(live)
    return after  # noqa: RET504 - what failed is logged


@contextmanager
def tell_failed_abort(ctx: Context, type_name: str) -> Iterator[None]:
    """Inside, a class is asked `abort`: an error is logged, and passes."""
    try:
        yield
    except OF_USERS:
        ctx.log.exception("abort() of %s failed, and so it is aborted", type_name)
        raise


@contextmanager
def tell_failed_clean_up(ctx: Context, type_name: str) -> Iterator[None]:
    """Inside, `on_completed` runs: an error is logged, and does not pass."""
    try:
        yield
    except StopStep:
        raise
    except BaseException:
        ctx.log.exception("on_completed of %s failed", type_name)


def run_to_end(
    runtime: AsyncRuntime, live: Procedure, ctx: Context, mode: Mode, unit: str | None, event: bytes | None
) -> Ended:
    """Run one step of an asynchronous class on a loop of its own: where it is replayed, or tried in a test."""
    import asyncio  # noqa: PLC0415 - workers without async steps do not load it

    inner = AsyncContext(*(getattr(ctx, name) for name in Context.__struct_fields__))
    inner._turns = inner._around = None

    def run() -> Ended:
        return asyncio.run(run_async(runtime, live, inner, mode, unit, event))

    try:
        if _is_on_loop():
            return _on_other_thread(run)
        return run()
    finally:
        ctx._asked_for_fence = inner._asked_for_fence


def _is_on_loop() -> bool:
    import asyncio  # noqa: PLC0415 - as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _on_other_thread(run: Any) -> Ended:
    found: list[Ended] = []
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: found.append(context.run(run)))
    thread.start()
    thread.join()
    return found[0]
