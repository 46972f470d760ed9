"""`handle.ask` and `ctx.reply` on the real engine: one answer for one id, from each client, and over each death."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import pytest

from actorproc import (
    Config,
    ManagerStopped,
    NoReply,
    Procedure,
    ProcedureAborted,
    ProcedureClient,
    ProcedureFailed,
    ProcedureManager,
    ProcedureParked,
    ResultTimeout,
    RetryPolicy,
    Saga,
    Secret,
    Status,
    StoreReader,
    step,
)
from actorproc.api.stopped import StoppedStore
from actorproc.errors import NotAllowed, StateNotEncodable, StateTooLarge, UnknownProcedure
from actorproc.report.info import SignalInfo
from actorproc.store.memory import MemoryStore
from actorproc.testing import InlineManager
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, wait_until


@dataclass(frozen=True)
class Price:
    of: str
    amount: Decimal


class Shop(Saga[str]):
    """Answers asks for prices until it is told to close."""

    uses = (Price,)
    served: int = 0

    @step
    def open(self, ctx):
        return Status.wait("price")

    @step
    def serve(self, ctx):
        if ctx.event == "close":
            return None
        self.served += 1
        if ctx.ask_id is not None and ctx.event != "silence":
            ctx.reply(Price(ctx.event, Decimal(self.served)))
        return Status.again(self)


class Asked(Saga):
    """One wait, and one step with a body of the test's choice."""

    how: str = ""
    retry = RetryPolicy(max_attempts=3, base=0.001, retry_on=(ConnectionError,))

    @step
    def wait(self, ctx):
        return Status.wait("go")

    @step
    def take(self, ctx):
        BODIES[self.how](ctx)

    @take.undo
    def untake(self, ctx):
        if self.how == "in an undo":
            SEEN.append(ctx.ask_id)
            SEEN.append(str(_error_of(lambda: ctx.reply("undone"))))

    @step
    def end(self, ctx):
        if self.how in {"in an undo", "undone"}:
            raise ValueError("no")
        if self.how == "by the next step":
            SEEN.append(str(_error_of(lambda: ctx.reply(1))))
        if self.how == "late":
            SEEN.append(str(_error_of(lambda: KEPT[-1].reply(1))))
        return "ended"


SEEN: list = []
KEPT: list = []


def _later(call):
    """Make a call on a thread; what gives its outcome."""
    with_thread = ThreadPoolExecutor(1)
    future = with_thread.submit(call)
    with_thread.shutdown(wait=False)
    return lambda: future.result(BOUND)


def _error_of(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error
    return None


def _twice(ctx):
    ctx.reply("first")
    SEEN.append(str(_error_of(lambda: ctx.reply("second"))))


def _at_the_second_attempt(ctx):
    ctx.reply(f"attempt {ctx.attempt}")
    if ctx.attempt == 1:
        raise ConnectionError("once more")


def _nothing_that_can_be_kept(ctx):
    SEEN.append(type(_error_of(lambda: ctx.reply(object()))))
    ctx.reply("this can")


BODIES = {
    "": lambda ctx: ctx.reply(ctx.event),
    "nothing": lambda ctx: ctx.reply(),
    "silent": lambda ctx: None,
    "twice": _twice,
    "at the second attempt": _at_the_second_attempt,
    "nothing that can be kept": _nothing_that_can_be_kept,
    "in an undo": lambda ctx: ctx.reply("done"),
    "undone": lambda ctx: ctx.reply("done"),
    "by the next step": lambda ctx: None,
    "late": KEPT.append,
    "to a signal": lambda ctx: SEEN.append(str(_error_of(lambda: ctx.reply(1)))),
}


@pytest.fixture
def manager():
    SEEN.clear()
    KEPT.clear()
    with InlineManager([Shop, Asked], workers=2) as made:
        yield made


# ---------------------------------------------------------------- replies
def test_each_ask_gets_the_reply_of_the_step_that_took_it_also_when_all_came_before_the_wait(manager):
    manager.pause(reason="all of them come first")
    handle = manager.submit(Shop(), id="shop")
    things = [f"thing {number}" for number in range(20)]
    with ThreadPoolExecutor(len(things)) as threads:
        waits = [threads.submit(handle.ask, "price", thing, BOUND) for thing in things]
        wait_until(lambda: len(manager.signals("shop")) == len(things))
        manager.resume()
        replies = [wait.result(BOUND) for wait in waits]

    assert [reply.of for reply in replies] == things
    assert sorted(reply.amount for reply in replies) == list(range(1, len(things) + 1))


def test_an_ask_with_an_id_gets_the_same_reply_whoever_asks_and_whatever_comes_with_it(manager):
    handle = manager.submit(Shop(), id="shop")
    first = handle.ask("price", "book", BOUND, id="a")

    assert handle.ask("price", "pen", BOUND, id="a") == first == Price("book", Decimal(1))
    assert manager.get("shop").ask("price", "pen", BOUND, id="b") == Price("pen", Decimal(2))
    manager.signal("shop", "close")
    handle.result(BOUND)
    assert handle.ask("price", None, BOUND, id="a") == first
    assert manager.info("shop").generation == 3


@pytest.mark.parametrize("payload", [None, 0, "", [1, {"a": b"b"}], Decimal("1.10"), Price("a", Decimal(1))], ids=repr)
def test_payloads_and_replies_are_values_as_states_hold_them(payload):
    with InlineManager([Echo]) as manager:
        assert manager.submit(Echo()).ask("go", payload, BOUND) == (payload,)


class Echo(Procedure):
    uses = (Price,)

    def execute(self, ctx):
        if ctx.ask_id is None:
            return Status.wait("go")
        ctx.reply((ctx.event,))
        return Status.done()


class Pickled(Echo):
    codec = "pickle"


class Odd:
    def __eq__(self, other):
        return isinstance(other, Odd)

    __hash__ = None


class PickledOdd(Procedure):
    codec = "pickle"

    def execute(self, ctx):
        if ctx.ask_id is None:
            return Status.wait("go")
        ctx.reply(Odd())
        return Status.done()


def test_replies_of_a_class_with_pickles_are_signed_for_their_procedure(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        assert manager.submit(PickledOdd()).ask("go", timeout=BOUND) == Odd()
        assert manager.submit(Pickled()).ask("go", [1], timeout=BOUND) == ([1],)


def test_a_coroutine_asks_beside_others(manager):
    async def ask():
        handle = await manager.submit_async(Shop(), id="shop")
        replies = await asyncio.gather(*(handle.ask_async("price", f"{n}", BOUND, id=f"{n}") for n in range(10)))
        with pytest.raises(ResultTimeout) as late:
            await handle.ask_async("never", timeout=0.01, id="n")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(handle.ask_async("never", id="n"), 0.01)
        return replies, late.value

    replies, late = asyncio.run(ask())
    assert [reply.of for reply in replies] == [f"{n}" for n in range(10)]
    assert late.ask == "n"
    assert [info.dedup for info in manager.signals("shop")] == ["n"]


def test_a_coroutine_that_asks_leaves_its_loop_to_others_while_the_store_is_read(manager, monkeypatch):
    here, threads = threading.get_ident(), {}

    def noted(name, honest):
        def call(*args):
            threads[name] = threading.get_ident()
            return honest(*args)

        return call

    for name in ("_send_ask", "_answer_to", "_reply_in", "_glance"):
        monkeypatch.setattr(manager, name, noted(name, getattr(manager, name)))

    async def ask():
        handle = await manager.submit_async(Shop(), id="shop")
        await handle.ask_async("price", "tea", BOUND)
        with pytest.raises(ResultTimeout):
            await handle.ask_async("never", timeout=0.01)

    asyncio.run(ask())
    assert len(threads) == 4
    assert here not in threads.values()


# ---------------------------------------------------------------- no reply
def test_a_time_limit_leaves_the_ask_standing_and_its_error_says_how_to_go_on(manager):
    handle = manager.submit(Asked())
    with pytest.raises(
        ResultTimeout, match=r"has not replied to the ask 'other' within 0.01 s; the ask stands"
    ) as late:
        handle.ask("other", timeout=0.01)
    assert late.value.ask
    assert "event 'go'" in str(late.value)
    assert f"id={late.value.ask!r}" in str(late.value)

    (kept,) = manager.signals(handle.id)
    assert kept == SignalInfo(id=handle.id, event=None, number=1, at=kept.at, size=1, dedup=late.value.ask, ask="other")


def test_a_step_that_ends_without_a_reply_is_told_at_once_and_for_good(manager):
    handle = manager.submit(Shop(), id="shop")
    for _ in range(2):
        with pytest.raises(NoReply, match=r"the ask 'price' \(q\) to shop has no reply: the step .* without") as found:
            handle.ask("price", "silence", BOUND, id="q")
        assert (found.value.ask, found.value.id, found.value.state) == ("q", "shop", "")
    assert handle.ask("price", "pen", BOUND).of == "pen"


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize("end", ["done", "aborted", "failed"])
def test_an_end_without_a_reply_raises_its_failure(manager, end, is_waiting):
    how = "undone" if end == "failed" else "silent"
    handle = manager.submit(Asked(how), id="a")
    error = {"done": NoReply, "aborted": ProcedureAborted, "failed": ProcedureFailed}[end]

    def finish():
        manager.abort("a") if end == "aborted" else manager.signal("a", "x") if how == "silent" else handle.ask(
            "go", 1, BOUND
        )
        handle.wait(BOUND)

    def asked():
        with pytest.raises(error) as found:
            handle.ask("other", timeout=BOUND)
        return found.value

    if is_waiting:
        found = _later(asked)
        wait_until(lambda: manager.signals("a"))
        finish()
        found = found()
    else:
        finish()
        found = asked()
    assert found.state == {"done": "SUCCESS"}.get(end, "ROLLEDBACK")
    assert manager.signals() == []


def test_who_waits_is_told_when_the_ask_is_withdrawn(manager):
    handle = manager.submit(Asked(), id="a")
    found = _later(lambda: handle.ask("other", timeout=BOUND))
    wait_until(lambda: manager.signals("a"))
    assert manager.withdraw("a") == 1
    with pytest.raises(NoReply, match="it was withdrawn"):
        found()


def test_a_procedure_that_is_not_there_has_no_answers(manager):
    handle = manager.submit(Asked("nothing"), id="a")
    assert handle.ask("go", timeout=BOUND) is None
    handle.result(BOUND)
    assert manager.delete("a")
    with pytest.raises(UnknownProcedure):
        handle.ask("go", timeout=BOUND)


def test_a_parked_procedure_says_so_and_one_that_waits_for_it_waits():
    store = MemoryStore()
    with InlineManager([Asked], store=store) as manager:
        manager.submit(Asked(), id="a")
        wait_until(lambda: manager.info("a").phase == "waiting")
    with InlineManager(store=store, config=Config(spares=0, parked_grace=0.0)) as manager:
        handle = manager.get("a")
        with pytest.raises(ProcedureParked, match="no class is registered"):
            handle.ask("go", 1, BOUND, id="x")
        found = _later(lambda: handle.ask("go", 1, BOUND, id="x", wait_parked=True))
        manager.register(Asked)
        assert found() == 1


def test_a_paused_procedure_is_waited_for_as_its_result_is(manager):
    handle = manager.submit(Asked(), id="a")
    wait_until(lambda: manager.info("a").phase == "waiting")
    manager.pause("a", reason="we look")
    with pytest.raises(ResultTimeout, match=r"it is paused at .*we look"):
        handle.ask("go", 1, 0.01, id="x")
    manager.resume("a")
    assert handle.ask("go", 2, BOUND, id="x") == 1


# ---------------------------------------------------------------- ctx.reply
@pytest.mark.parametrize(
    ("how", "reply", "seen"),
    [
        ("twice", "first", "has its reply already"),
        ("at the second attempt", "attempt 2", None),
        ("nothing that can be kept", "this can", StateNotEncodable),
    ],
)
def test_a_step_replies_once_with_its_success(manager, how, reply, seen):
    handle = manager.submit(Asked(how))

    assert handle.ask("go", timeout=BOUND) == reply
    assert handle.result(BOUND) == "ended"
    assert seen is None or seen is SEEN[0] or seen in SEEN[0]


def test_an_undo_replies_to_nothing_and_takes_no_reply_back(manager):
    handle = manager.submit(Asked("in an undo"), id="a")
    assert handle.ask("go", timeout=BOUND, id="x") == "done"
    with pytest.raises(ProcedureFailed):
        handle.result(BOUND)
    assert SEEN[0] is None
    assert "was woken by no ask" in SEEN[1]
    assert handle.ask("go", timeout=BOUND, id="x") == "done"


@pytest.mark.parametrize(
    ("how", "words"),
    [("by the next step", "was woken by no ask"), ("late", "is over"), ("to a signal", "was woken by no ask")],
)
def test_what_took_no_ask_cannot_reply(manager, how, words):
    handle = manager.submit(Asked(how))
    if how == "to a signal":
        manager.signal(handle.id, 1)
    else:
        with pytest.raises(NoReply):
            handle.ask("go", timeout=BOUND)
    handle.result(BOUND)

    assert words in SEEN[0]


class AsyncAsked(Saga):
    @step
    async def wait(self, ctx):
        return Status.wait("go")

    @step
    async def take(self, ctx):
        await asyncio.sleep(0)
        assert ctx.ask_id == "x"
        ctx.reply(ctx.event * 2)
        return "ended"


def test_an_async_step_replies_as_any_other(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        handle = manager.submit(AsyncAsked())
        assert handle.ask("go", 21, BOUND, id="x") == 42
        assert handle.result(BOUND) == "ended"


# ---------------------------------------------------------------- bad arguments
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"name": ""}, ValueError, "the name of an event"),
        ({"name": 7}, TypeError, "the name of an event"),
        ({"name": "x" * 256}, ValueError, "256 bytes"),
        ({"id": ""}, ValueError, "the id of an ask"),
        ({"id": "a\0b"}, ValueError, "holds NUL"),
        ({"id": 3}, TypeError, "the id of an ask"),
        ({"timeout": "soon"}, TypeError, "timeout"),
        ({"payload": object()}, StateNotEncodable, "payload"),
        ({"payload": "x" * 2_000_000}, StateTooLarge, "max_state"),
    ],
    ids=["empty name", "no text", "long name", "empty id", "nul", "no text as id", "timeout", "object", "large"],
)
def test_bad_arguments_get_a_clear_error_and_send_nothing(arguments, error, words):
    with InlineManager([Asked], config=Config(spares=0, max_state=1_000_000)) as manager:
        handle = manager.submit(Asked())
        with pytest.raises(error, match=words):
            handle.ask(**{"name": "go", "timeout": BOUND} | arguments)
        with pytest.raises(error, match=words):
            asyncio.run(handle.ask_async(**{"name": "go", "timeout": BOUND} | arguments))
        assert manager.signals() == []


def test_asks_that_none_takes_are_bounded_as_signals_are(manager, monkeypatch):
    monkeypatch.setattr("actorproc.core.lifecycle.signals.MAX_BUFFERED", 1)
    handle = manager.submit(Asked())
    with pytest.raises(ResultTimeout):
        handle.ask("other", timeout=0.01)
    with pytest.raises(NotAllowed, match=r"1 signals to .* are kept already"):
        handle.ask("other", timeout=BOUND)


def test_a_dedup_cannot_look_like_an_ask(manager):
    handle = manager.submit(Asked())
    with pytest.raises(ValueError, match="begins with NUL"):
        manager.signal(handle.id, 1, "\0a\0go")


# ---------------------------------------------------------------- other processes, and later ones
@dataclass
class Word:
    text: Annotated[str, Secret]


class Keeper(Procedure):
    uses = (Word,)

    def execute(self, ctx):
        if ctx.event is None:
            return Status.wait("word")
        if ctx.ask_id is not None:
            ctx.reply(Word("open sesame"))
        return Status.wait("word")


def test_clients_and_later_managers_give_the_same_answer(tmp_path):
    path = tmp_path / "s"
    with ProcedureManager(path, procedures=[Keeper], workers=1, **LIGHT) as manager:
        manager.submit(Keeper(), id="k")
        with ProcedureClient(path, procedures=[Keeper]) as client:
            handle = client.get("k")
            assert handle.ask("word", "please", BOUND, id="x") == Word("open sesame")
            with pytest.raises(ResultTimeout):
                handle.ask("other", timeout=0.01, id="stands")
        assert manager.get("k").ask("word", timeout=BOUND, id="x") == Word("open sesame")
        assert [info.ask for info in manager.signals("k")] == ["other"]
    with StoreReader(path) as reader:
        assert [(info.ask, info.dedup) for info in reader.signals("k")] == [("other", "stands")]
    with StoppedStore(path) as stopped:
        stopped._types.register(Keeper)
        assert stopped.get("k").ask("word", id="x") == Word("open sesame")
        with pytest.raises(ManagerStopped, match="a reply to an ask"):
            stopped.get("k").ask("other", id="new")
        with pytest.raises(UnknownProcedure):
            stopped.get("k2")
    with ProcedureManager(path, procedures=[Keeper], workers=1, **LIGHT) as manager:
        assert [info.dedup for info in manager.signals("k")] == ["stands"]
        assert manager.get("k").ask("word", timeout=BOUND, id="x") == Word("open sesame")


def test_a_client_that_waits_is_answered_by_the_next_manager(tmp_path):
    path = tmp_path / "s"
    with ProcedureManager(path, procedures=[Asked], workers=1, **LIGHT) as manager:
        manager.submit(Asked(), id="a")
        wait_until(lambda: manager.info("a").phase == "waiting")
        manager.pause("a")
        client = ProcedureClient(path)
        found = _later(lambda: client.get("a").ask("go", "over a restart", BOUND, id="x"))
        wait_until(lambda: manager.signals("a") == [] and manager.info("a").phase == "paused")
    with ProcedureManager(path, procedures=[Asked], workers=1, **LIGHT) as manager:
        manager.resume("a")
        assert found() == "over a restart"
    client.close()


HOST = """
import os, signal, sys
from actorproc import Config, ProcedureManager
from actorproc.engine import end_waiters
from tests.engine.test_asking import Asked

path, place = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if place == "before the answer":
    end_waiters.EndWaiters.answer = die
elif place == "before the commit":
    from actorproc.core.state import signal_ids
    from actorproc.core.lifecycle import step_record
    step_record.settle_ask = die
with ProcedureManager(path, procedures=[Asked], workers=1, config=Config(spares=0)) as manager:
    handle = manager.submit(Asked(), id="a")
    print(handle.ask("go", place, 60, id="x"), flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("place", ["before the answer", "before the commit"])
def test_a_host_that_is_killed_around_the_commit_of_a_reply_answers_once_at_the_next_start(tmp_path, place):
    run = [sys.executable, "-c", textwrap.dedent(HOST), str(tmp_path / "s")]
    died = subprocess.run([*run, place], capture_output=True, text=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    with StoreReader(tmp_path / "s") as reader:
        is_stored = bool(reader._store.replies("a"))
    assert is_stored == (place == "before the answer")

    later = subprocess.run([*run, "nowhere"], capture_output=True, text=True, timeout=120, check=False)
    assert later.stdout.strip() == place, later.stderr  # the first payload counts


def test_a_stop_tells_those_who_wait_and_the_ask_stands(tmp_path):
    path = tmp_path / "s"
    with ProcedureManager(path, procedures=[Asked], workers=1, **LIGHT) as manager:
        handle = manager.submit(Asked(), id="a")
        found = _later(lambda: handle.ask("other", timeout=BOUND, id="x"))
        wait_until(lambda: manager.signals("a"))
    with pytest.raises(ManagerStopped):
        found()
    with StoreReader(path) as reader:
        assert [info.dedup for info in reader.signals("a")] == ["x"]


def test_many_threads_that_ask_with_one_id_share_one_wait(manager):
    handle = manager.submit(Asked(), id="a")
    wait_until(lambda: manager.info("a").phase == "waiting")
    manager.pause("a")
    barrier = threading.Barrier(8)

    def ask():
        barrier.wait(BOUND)
        return handle.ask("go", "one", BOUND, id="x")

    with ThreadPoolExecutor(8) as threads:
        waits = [threads.submit(ask) for _ in range(8)]
        wait_until(lambda: len(manager._tree._replies.ends._by_id.get("a", ())) == 1)
        manager.resume("a")
        assert {wait.result(BOUND) for wait in waits} == {"one"}
    assert manager._tree._replies.ends._shared == {}
