"""Poison keys from the first warning to the operator's word, and what is shown of locks."""

from __future__ import annotations

from actorproc.core.coordinator import Coordinator
from actorproc.core.locks.explain import WaitersByNode, dangling
from actorproc.errors import KeyPoisoned, StoreDamaged
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import PoisonCleared, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Poisoned, Suspended
from actorproc.model.policies import Backoff, LockKey, LockMode, TypeMeta
from actorproc.model.rows.records import ErrorInfo, LockRecord, ProcedureRecord
from actorproc.model.rows.writes import DeletePoison, PutPoison
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, image_of

DONE = Finished(state=b"")
KEY = LockKey.write("cat/t")
RISKY = Advanced(state=b"", unit="", poisons=("cat/t",))
CALM = Advanced(state=b"", unit="", poisons=())


def _limited(**traits: object) -> CoreHarness:
    return CoreHarness(workers=2, **({"rollback_supported": True, "rollback_retry": Backoff(max_attempts=1)} | traits))


def _poisons(harness: CoreHarness) -> dict[str, str]:
    """Poisoned keys and by whom, as the writes so far left them in the store."""
    return {path: poison.by for path, poison in image_of(harness).poisons.items()}


def _give_up(harness: CoreHarness, id: str) -> None:
    harness.answer(id, boom())
    harness.answer(id, boom("cannot undo"))
    assert harness.state(id) is ProcedureState.FAILED


def _clear(harness: CoreHarness, path: str) -> bool:
    decision = harness.handle(PoisonCleared(path, reply=9, reason="looked at it"))
    return next(bool(command.value) for command in decision.commands if isinstance(command, Reply))


# ---------------------------------------------------------------- set before a risky step, and taken back
def test_a_key_poisoned_before_a_risky_step_is_in_the_same_decision_as_that_steps_dispatch() -> None:
    harness = _limited()
    harness.submit(harness.new("p", unit="", locks=(KEY,)))

    decision = harness.answer("p", RISKY)

    assert [write.record.path for write in decision.writes if isinstance(write, PutPoison)] == ["cat/t"]
    assert harness.inbox["p"].token.step == 2


def test_a_later_step_without_poison_keys_takes_them_back() -> None:
    harness = _limited()
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", RISKY)

    harness.answer("p", CALM)

    assert _poisons(harness) == {}


def test_success_takes_poison_keys_back() -> None:
    harness = _limited()
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", RISKY)

    harness.answer("p", DONE)

    assert harness.state("p") is ProcedureState.SUCCESS
    assert _poisons(harness) == {}


def test_a_completed_rollback_takes_poison_keys_back() -> None:
    harness = _limited()
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", RISKY)
    harness.answer("p", boom())
    assert _poisons(harness) == {"cat/t": "p"}

    harness.undo_all()

    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert _poisons(harness) == {}


def test_a_procedure_that_fails_without_an_undo_leaves_its_poison_keys() -> None:
    harness = _limited(rollback_supported=False)
    harness.submit(harness.new("p", locks=(KEY,)))
    harness.answer("p", Advanced(state=b"", poisons=("cat/t",)))

    harness.answer("p", boom())

    assert harness.state("p") is ProcedureState.FAILED
    assert _poisons(harness) == {"cat/t": "p"}


def test_a_rollback_that_gave_up_leaves_poison_keys_of_its_own_and_of_its_write_locks() -> None:
    harness = _limited()
    harness.submit(harness.new("p", unit="", locks=(KEY, LockKey.read("cat/u"))))
    harness.answer("p", Advanced(state=b"", unit="", poisons=("outside",)))

    _give_up(harness, "p")

    assert _poisons(harness) == {"outside": "p", "cat/t": "p"}


def test_a_retried_or_crashed_risky_step_keeps_its_key_poisoned() -> None:
    harness = _limited(retry=Backoff(base=0.0))
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", RISKY)

    harness.answer("p", Failed(error=ErrorInfo("error", "ConnectionError", "busy"), retryable=True, after=60.0))
    assert _poisons(harness) == {"cat/t": "p"}
    harness.kill(0)

    assert _poisons(harness) == {"cat/t": "p"}


def test_one_procedure_does_not_take_back_what_another_has_poisoned() -> None:
    harness = _limited()
    harness.submit(harness.new("one", unit=""), harness.new("two", unit=""))
    harness.answer("one", RISKY)
    harness.answer("two", RISKY)

    harness.answer("two", DONE)

    assert _poisons(harness) == {"cat/t": "one"}


# ---------------------------------------------------------------- whom it stops
def test_a_poisoned_key_does_not_stop_its_owners_tree() -> None:
    harness = _limited()
    harness.submit(harness.new("p", unit=""))
    child = harness.new("c", locks=(LockKey.write("cat/t/below"),))

    harness.answer("p", Suspended(state=b"", unit="", poisons=("cat/t",), children=(child,)))
    harness.answer("c", Advanced(state=b"", acquire=(LockKey.write("cat"),)))
    harness.answer("c", DONE)
    harness.answer("p", DONE)

    assert harness.resolved() == {"c": ProcedureState.SUCCESS, "p": ProcedureState.SUCCESS}
    assert _poisons(harness) == {}


def test_keys_above_and_below_a_poisoned_one_are_refused_and_others_are_not() -> None:
    harness = _limited()
    harness.submit(harness.new("bad", unit="", locks=(KEY,)))
    _give_up(harness, "bad")

    refused = [harness.submit(harness.new(f"r{n}", locks=(key,))).error for n, key in enumerate(
        (LockKey.read("cat/t"), LockKey.read("cat/t/below"), LockKey.write("cat")))]  # fmt: skip
    accepted = harness.submit(harness.new("other", locks=(LockKey.write("cat/tt"),)))

    assert all(isinstance(error, KeyPoisoned) for error in refused)
    assert accepted.error is None


def test_a_refusal_names_who_poisoned_the_key_why_and_the_call_that_clears_it() -> None:
    harness = _limited()
    harness.submit(harness.new("bad", unit="", locks=(KEY,)))
    _give_up(harness, "bad")

    text = str(harness.submit(harness.new("new", locks=(KEY,))).error)

    assert "poisoned by bad: rollback of bad gave up: cannot undo" in text
    assert 'manager.clear_poison("cat/t")' in text


# ---------------------------------------------------------------- an operator clears it
def test_a_cleared_key_is_free_again() -> None:
    harness = _limited()
    harness.submit(harness.new("bad", unit="", locks=(KEY,)))
    _give_up(harness, "bad")

    assert _clear(harness, "cat/t") is True

    assert _poisons(harness) == {}
    assert harness.submit(harness.new("new", locks=(KEY,))).error is None
    assert "new" in harness.inbox


def test_clearing_a_key_that_is_not_poisoned_says_so_and_writes_nothing() -> None:
    harness = _limited()
    harness.submit(harness.new("bad", unit="", locks=(KEY,)))
    _give_up(harness, "bad")

    before = len(harness.writes)

    assert _clear(harness, "cat") is False
    assert _clear(harness, "cat/t/below") is False
    assert harness.writes[before:] == []


def test_clearing_a_key_twice_is_true_once() -> None:
    harness = _limited()
    harness.submit(harness.new("bad", unit="", locks=(KEY,)))
    _give_up(harness, "bad")

    assert [_clear(harness, "cat/t"), _clear(harness, "cat/t")] == [True, False]

    assert sum(isinstance(write, DeletePoison) for write in harness.writes) == 1


def test_a_poisoner_that_still_runs_goes_on_after_its_key_was_cleared() -> None:
    harness = _limited()
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", RISKY)

    assert _clear(harness, "cat/t") is True
    harness.answer("p", RISKY)
    harness.answer("p", CALM)
    harness.answer("p", DONE)

    assert harness.state("p") is ProcedureState.SUCCESS
    assert _poisons(harness) == {}


def test_poison_and_its_clearing_survive_a_restart() -> None:
    harness = _limited()
    harness.submit(harness.new("bad", unit="", locks=(KEY,)))
    harness.answer("bad", Poisoned(state=b"", keys=("a", "b"), error=ErrorInfo("poisoned", "Poisoned", "half done")))
    assert harness.state("bad") is ProcedureState.FAILED
    _clear(harness, "a")

    harness.core, _ = Coordinator.restore(image_of(harness).snapshot(), 0.0)
    harness.handle(TypeRegistered(TypeMeta(type_name="T")))

    assert harness.submit(harness.new("one", locks=(LockKey.read("a"),))).error is None
    assert isinstance(harness.submit(harness.new("two", locks=(LockKey.read("b"),))).error, KeyPoisoned)


def test_a_refused_waiter_has_ended_before_its_key_can_be_cleared() -> None:
    harness = _limited()
    harness.submit(harness.new("bad", unit="", locks=(KEY,)))
    harness.submit(harness.new("waits", locks=(KEY,)))
    assert harness.core.phase(_head(harness, "waits"))[0] is Phase.LOCKED_OUT
    _give_up(harness, "bad")

    _clear(harness, "cat/t")

    assert harness.state("waits") is ProcedureState.ROLLEDBACK


def _head(harness: CoreHarness, id: str) -> ProcedureRecord:
    record = harness.core.view(id)
    assert record is not None
    return record


# ---------------------------------------------------------------- who waits for which lock
def _waiting_for(harness: CoreHarness, path: str, holder: str) -> list[tuple[str, str]]:
    lock = image_of(harness).locks[path, holder]
    queue = WaitersByNode(harness.core.lock_waiters(), lambda waiter, mode: (waiter.procedure, mode.name.lower()))
    return list(queue.of(lock))


def test_each_lock_shows_its_own_waiters_in_the_order_of_the_queue() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("a", locks=(LockKey.write("x"),)), harness.new("b", locks=(LockKey.write("y"),)))

    harness.submit(harness.new("w1", locks=(LockKey.write("x"),)))
    harness.submit(harness.new("w2", locks=(LockKey.read("y"),)))
    harness.submit(harness.new("w3", locks=(LockKey.read("x"),)))
    harness.submit(harness.new("w4", locks=(LockKey.write("x"), LockKey.read("y"))))

    assert _waiting_for(harness, "x", "a") == [("w1", "write"), ("w3", "read"), ("w4", "write")]
    assert _waiting_for(harness, "y", "b") == [("w2", "read"), ("w4", "read")]


def test_a_lock_shows_who_waits_for_a_key_above_or_below_it() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("a", locks=(LockKey.write("cat/t"),)), harness.new("b", locks=(LockKey.write("cat/u"),)))

    harness.submit(harness.new("below", locks=(LockKey.read("cat/t/region"),)))
    harness.submit(harness.new("above", locks=(LockKey.write("cat"),)))

    assert _waiting_for(harness, "cat/t", "a") == [("below", "read"), ("above", "write")]
    assert _waiting_for(harness, "cat/u", "b") == [("above", "write")]


def test_a_reader_behind_a_writer_waits_for_the_reader_in_front() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("reader", locks=(LockKey.read("x"),)))

    harness.submit(harness.new("writer", locks=(LockKey.write("x"),)))
    harness.submit(harness.new("late", locks=(LockKey.read("x"),)))

    assert _waiting_for(harness, "x", "reader") == [("writer", "write"), ("late", "read")]


def test_a_key_that_a_waiter_shares_with_the_holder_is_not_what_it_waits_for() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("a", locks=(LockKey.write("x"),)), harness.new("b", locks=(LockKey.read("y"),)))

    harness.submit(harness.new("w", locks=(LockKey.write("x"), LockKey.read("y"))))

    assert _waiting_for(harness, "x", "a") == [("w", "write")]
    assert _waiting_for(harness, "y", "b") == []


def test_a_child_does_not_wait_for_its_parents_lock() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("p", locks=(LockKey.write("x"),)), harness.new("q", locks=(LockKey.write("y"),)))

    child = harness.new("c", locks=(LockKey.write("x/below"), LockKey.write("y")))
    harness.answer("p", Suspended(state=b"", children=(child,)))

    assert _waiting_for(harness, "x", "p") == []
    assert _waiting_for(harness, "y", "q") == [("c", "write")]


# ---------------------------------------------------------------- locks of nobody
def test_stored_locks_that_agree_with_memory_are_not_dangling() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p", locks=(KEY,)))

    assert dangling(list(image_of(harness).locks.values()), harness.core.lock_holders(), harness.core.view) == []


def test_every_disagreement_about_a_lock_is_named() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p", locks=(KEY,)), harness.new("ended"))
    harness.answer("ended", DONE)

    def heads(id: str) -> ProcedureRecord | None:
        if id == "unreadable":
            raise StoreDamaged("damaged", reason="bad checksum")
        return harness.core.view(id)

    def row(path: str, holder: str, root: str = "") -> LockRecord:
        return LockRecord(path, LockMode.READ, holder, root or holder, 1.0)

    stored = [row("1", "ghost"), row("2", "ended"), row("3", "unreadable"), row("4", "p"), row("5", "p", "other")]

    reasons = {lock.path: reason for lock, reason in dangling(stored, harness.core.lock_holders(), heads)}
    wrong_mode = dangling([row("cat/t", "p")], harness.core.lock_holders(), heads)

    assert reasons == {
        "1": "its holder ghost does not exist",
        "2": "its holder ended has ended SUCCESS",
        "3": "its holder unreadable cannot be read: bad checksum",
        "4": "the store holds it and the running engine does not",
        "5": "its holder p belongs to the tree of p, not of other",
        "cat/t": "the running engine holds it and the store does not",
    }
    assert [reason for _, reason in wrong_mode] == ["the running engine holds it for write, the store for read"]


# ---------------------------------------------------------------- one key, several poisoners
def _declaring(harness: CoreHarness, *names: str, **fields: object) -> None:
    for name in names:
        harness.submit(harness.new(name, unit="", poisons=("cat/t",), **fields))


def test_a_key_stays_poisoned_until_the_last_of_those_who_declared_it_is_known_to_be_clean() -> None:
    harness = _limited()
    _declaring(harness, "a", "b")

    harness.answer("a", Finished(state=b"", poisons=("cat/t",)))
    after_the_first = _poisons(harness)
    harness.answer("b", Finished(state=b"", poisons=("cat/t",)))

    assert after_the_first == {"cat/t": "b"}
    assert _poisons(harness) == {}


def test_a_later_poisoner_that_is_clean_first_leaves_the_key_to_the_earlier_one() -> None:
    harness = _limited()
    _declaring(harness, "a", "b")

    harness.answer("b", Finished(state=b"", poisons=("cat/t",)))

    assert image_of(harness).poisons["cat/t"].by == "a"
    assert image_of(harness).poisons["cat/t"].others == ()


def test_a_poisoner_that_failed_without_an_undo_keeps_the_key_when_the_other_one_ends_well() -> None:
    harness = CoreHarness(workers=2)
    for name in ("a", "b"):
        harness.submit(harness.new(name, poisons=("cat/t",)))

    harness.answer("b", boom())
    harness.answer("a", Finished(state=b"", poisons=("cat/t",)))

    assert harness.resolved()["b"] is ProcedureState.FAILED
    assert _poisons(harness) == {"cat/t": "b"}
    assert "poisoned by b" in str(harness.submit(harness.new("c", locks=(KEY,))).error)


def test_all_who_poisoned_a_key_survive_a_restart_and_are_named_to_whom_it_is_refused() -> None:
    harness = CoreHarness(workers=3)
    _declaring(harness, "a", "b", "c")

    core, _ = Coordinator.restore(image_of(harness).snapshot(), harness.now)

    poison = core._state.locks.poisons["cat/t"]
    assert (poison.by, poison.others) == ("a", (("b", "b"), ("c", "c")))
    assert "poisoned by a: set by poison_keys() before a risky step (and by b, c)" in core._state.locks.poison_notice(
        "cat/t"
    )


def test_a_key_shared_by_poisoners_is_cleared_for_all_of_them_by_the_operator() -> None:
    harness = _limited()
    _declaring(harness, "a", "b")

    assert _clear(harness, "cat/t")
    harness.answer("a", Finished(state=b"", poisons=("cat/t",)))

    assert _poisons(harness) == {}
    assert harness.submit(harness.new("c", locks=(KEY,))).error is None


def test_of_three_poisoners_the_first_that_is_clean_leaves_the_key_to_both_others() -> None:
    harness = _limited()
    harness.handle(WorkerReady(WorkerId(2, 1)))
    _declaring(harness, "a", "b", "c")

    harness.answer("a", Finished(state=b"", poisons=("cat/t",)))

    kept = image_of(harness).poisons["cat/t"]
    assert (kept.by, kept.others) == ("b", (("c", "c"),))


def test_who_finds_damage_where_others_poisoned_too_is_told_of_first_and_the_others_stay() -> None:
    harness = _limited()
    _declaring(harness, "a", "b")

    harness.answer("b", Poisoned(keys=("cat/t",), error=ErrorInfo("poisoned", "ValueError", "half written")))

    found = image_of(harness).poisons["cat/t"]
    assert (found.by, found.others, found.reason) == ("b", (("a", "a"),), "half written")
