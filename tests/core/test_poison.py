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
from tests.core.stage import Stage, boom, image_of

DONE = Finished(state=b"")
KEY = LockKey.write("cat/t")
RISKY = Advanced(state=b"", unit="", poisons=("cat/t",))
CALM = Advanced(state=b"", unit="", poisons=())


def _stage(**traits: object) -> Stage:
    return Stage(workers=2, **({"rollback_supported": True, "rollback_retry": Backoff(max_attempts=1)} | traits))


def _poisons(stage: Stage) -> dict[str, str]:
    """Poisoned keys and by whom, as the writes so far left them in the store."""
    return {path: poison.by for path, poison in image_of(stage).poisons.items()}


def _give_up(stage: Stage, id: str) -> None:
    stage.answer(id, boom())
    stage.answer(id, boom("cannot undo"))
    assert stage.state(id) is ProcedureState.FAILED


def _clear(stage: Stage, path: str) -> bool:
    decision = stage.handle(PoisonCleared(path, reply=9, reason="looked at it"))
    return next(bool(command.value) for command in decision.commands if isinstance(command, Reply))


# ---------------------------------------------------------------- set before a risky step, and taken back
def test_a_key_poisoned_before_a_risky_step_is_in_the_same_decision_as_that_steps_dispatch() -> None:
    stage = _stage()
    stage.submit(stage.new("p", unit="", locks=(KEY,)))

    decision = stage.answer("p", RISKY)

    assert [write.record.path for write in decision.writes if isinstance(write, PutPoison)] == ["cat/t"]
    assert stage.inbox["p"].token.step == 2


def test_a_later_step_without_poison_keys_takes_them_back() -> None:
    stage = _stage()
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", RISKY)

    stage.answer("p", CALM)

    assert _poisons(stage) == {}


def test_success_takes_poison_keys_back() -> None:
    stage = _stage()
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", RISKY)

    stage.answer("p", DONE)

    assert stage.state("p") is ProcedureState.SUCCESS
    assert _poisons(stage) == {}


def test_a_completed_rollback_takes_poison_keys_back() -> None:
    stage = _stage()
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", RISKY)
    stage.answer("p", boom())
    assert _poisons(stage) == {"cat/t": "p"}

    stage.undo_all()

    assert stage.state("p") is ProcedureState.ROLLEDBACK
    assert _poisons(stage) == {}


def test_a_procedure_that_fails_without_an_undo_leaves_its_poison_keys() -> None:
    stage = _stage(rollback_supported=False)
    stage.submit(stage.new("p", locks=(KEY,)))
    stage.answer("p", Advanced(state=b"", poisons=("cat/t",)))

    stage.answer("p", boom())

    assert stage.state("p") is ProcedureState.FAILED
    assert _poisons(stage) == {"cat/t": "p"}


def test_a_rollback_that_gave_up_leaves_poison_keys_of_its_own_and_of_its_write_locks() -> None:
    stage = _stage()
    stage.submit(stage.new("p", unit="", locks=(KEY, LockKey.read("cat/u"))))
    stage.answer("p", Advanced(state=b"", unit="", poisons=("outside",)))

    _give_up(stage, "p")

    assert _poisons(stage) == {"outside": "p", "cat/t": "p"}


def test_a_retried_or_crashed_risky_step_keeps_its_key_poisoned() -> None:
    stage = _stage(retry=Backoff(base=0.0))
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", RISKY)

    stage.answer("p", Failed(error=ErrorInfo("error", "ConnectionError", "busy"), retryable=True, after=60.0))
    assert _poisons(stage) == {"cat/t": "p"}
    stage.kill(0)

    assert _poisons(stage) == {"cat/t": "p"}


def test_one_procedure_does_not_take_back_what_another_has_poisoned() -> None:
    stage = _stage()
    stage.submit(stage.new("one", unit=""), stage.new("two", unit=""))
    stage.answer("one", RISKY)
    stage.answer("two", RISKY)

    stage.answer("two", DONE)

    assert _poisons(stage) == {"cat/t": "one"}


# ---------------------------------------------------------------- whom it stops
def test_a_poisoned_key_does_not_stop_its_owners_tree() -> None:
    stage = _stage()
    stage.submit(stage.new("p", unit=""))
    child = stage.new("c", locks=(LockKey.write("cat/t/below"),))

    stage.answer("p", Suspended(state=b"", unit="", poisons=("cat/t",), children=(child,)))
    stage.answer("c", Advanced(state=b"", acquire=(LockKey.write("cat"),)))
    stage.answer("c", DONE)
    stage.answer("p", DONE)

    assert stage.resolved() == {"c": ProcedureState.SUCCESS, "p": ProcedureState.SUCCESS}
    assert _poisons(stage) == {}


def test_keys_above_and_below_a_poisoned_one_are_refused_and_others_are_not() -> None:
    stage = _stage()
    stage.submit(stage.new("bad", unit="", locks=(KEY,)))
    _give_up(stage, "bad")

    refused = [stage.submit(stage.new(f"r{n}", locks=(key,))).error for n, key in enumerate(
        (LockKey.read("cat/t"), LockKey.read("cat/t/below"), LockKey.write("cat")))]  # fmt: skip
    accepted = stage.submit(stage.new("other", locks=(LockKey.write("cat/tt"),)))

    assert all(isinstance(error, KeyPoisoned) for error in refused)
    assert accepted.error is None


def test_a_refusal_names_who_poisoned_the_key_why_and_the_call_that_clears_it() -> None:
    stage = _stage()
    stage.submit(stage.new("bad", unit="", locks=(KEY,)))
    _give_up(stage, "bad")

    text = str(stage.submit(stage.new("new", locks=(KEY,))).error)

    assert "poisoned by bad: rollback of bad gave up: cannot undo" in text
    assert 'manager.clear_poison("cat/t")' in text


# ---------------------------------------------------------------- an operator clears it
def test_a_cleared_key_is_free_again() -> None:
    stage = _stage()
    stage.submit(stage.new("bad", unit="", locks=(KEY,)))
    _give_up(stage, "bad")

    assert _clear(stage, "cat/t") is True

    assert _poisons(stage) == {}
    assert stage.submit(stage.new("new", locks=(KEY,))).error is None
    assert "new" in stage.inbox


def test_clearing_a_key_that_is_not_poisoned_says_so_and_writes_nothing() -> None:
    stage = _stage()
    stage.submit(stage.new("bad", unit="", locks=(KEY,)))
    _give_up(stage, "bad")

    before = len(stage.writes)

    assert _clear(stage, "cat") is False
    assert _clear(stage, "cat/t/below") is False
    assert stage.writes[before:] == []


def test_clearing_a_key_twice_is_true_once() -> None:
    stage = _stage()
    stage.submit(stage.new("bad", unit="", locks=(KEY,)))
    _give_up(stage, "bad")

    assert [_clear(stage, "cat/t"), _clear(stage, "cat/t")] == [True, False]

    assert sum(isinstance(write, DeletePoison) for write in stage.writes) == 1


def test_a_poisoner_that_still_runs_goes_on_after_its_key_was_cleared() -> None:
    stage = _stage()
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", RISKY)

    assert _clear(stage, "cat/t") is True
    stage.answer("p", RISKY)
    stage.answer("p", CALM)
    stage.answer("p", DONE)

    assert stage.state("p") is ProcedureState.SUCCESS
    assert _poisons(stage) == {}


def test_poison_and_its_clearing_survive_a_restart() -> None:
    stage = _stage()
    stage.submit(stage.new("bad", unit="", locks=(KEY,)))
    stage.answer("bad", Poisoned(state=b"", keys=("a", "b"), error=ErrorInfo("poisoned", "Poisoned", "half done")))
    assert stage.state("bad") is ProcedureState.FAILED
    _clear(stage, "a")

    stage.core, _ = Coordinator.restore(image_of(stage).snapshot(), 0.0)
    stage.handle(TypeRegistered(TypeMeta(type_name="T")))

    assert stage.submit(stage.new("one", locks=(LockKey.read("a"),))).error is None
    assert isinstance(stage.submit(stage.new("two", locks=(LockKey.read("b"),))).error, KeyPoisoned)


def test_a_refused_waiter_has_ended_before_its_key_can_be_cleared() -> None:
    stage = _stage()
    stage.submit(stage.new("bad", unit="", locks=(KEY,)))
    stage.submit(stage.new("waits", locks=(KEY,)))
    assert stage.core.phase(_head(stage, "waits"))[0] is Phase.LOCKED_OUT
    _give_up(stage, "bad")

    _clear(stage, "cat/t")

    assert stage.state("waits") is ProcedureState.ROLLEDBACK


def _head(stage: Stage, id: str) -> ProcedureRecord:
    record = stage.core.view(id)
    assert record is not None
    return record


# ---------------------------------------------------------------- who waits for which lock
def _waiting_for(stage: Stage, path: str, holder: str) -> list[tuple[str, str]]:
    lock = image_of(stage).locks[path, holder]
    queue = WaitersByNode(stage.core.lock_waiters(), lambda waiter, mode: (waiter.procedure, mode.name.lower()))
    return list(queue.of(lock))


def test_each_lock_shows_its_own_waiters_in_the_order_of_the_queue() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("a", locks=(LockKey.write("x"),)), stage.new("b", locks=(LockKey.write("y"),)))

    stage.submit(stage.new("w1", locks=(LockKey.write("x"),)))
    stage.submit(stage.new("w2", locks=(LockKey.read("y"),)))
    stage.submit(stage.new("w3", locks=(LockKey.read("x"),)))
    stage.submit(stage.new("w4", locks=(LockKey.write("x"), LockKey.read("y"))))

    assert _waiting_for(stage, "x", "a") == [("w1", "write"), ("w3", "read"), ("w4", "write")]
    assert _waiting_for(stage, "y", "b") == [("w2", "read"), ("w4", "read")]


def test_a_lock_shows_who_waits_for_a_key_above_or_below_it() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("a", locks=(LockKey.write("cat/t"),)), stage.new("b", locks=(LockKey.write("cat/u"),)))

    stage.submit(stage.new("below", locks=(LockKey.read("cat/t/region"),)))
    stage.submit(stage.new("above", locks=(LockKey.write("cat"),)))

    assert _waiting_for(stage, "cat/t", "a") == [("below", "read"), ("above", "write")]
    assert _waiting_for(stage, "cat/u", "b") == [("above", "write")]


def test_a_reader_behind_a_writer_waits_for_the_reader_in_front() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("reader", locks=(LockKey.read("x"),)))

    stage.submit(stage.new("writer", locks=(LockKey.write("x"),)))
    stage.submit(stage.new("late", locks=(LockKey.read("x"),)))

    assert _waiting_for(stage, "x", "reader") == [("writer", "write"), ("late", "read")]


def test_a_key_that_a_waiter_shares_with_the_holder_is_not_what_it_waits_for() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("a", locks=(LockKey.write("x"),)), stage.new("b", locks=(LockKey.read("y"),)))

    stage.submit(stage.new("w", locks=(LockKey.write("x"), LockKey.read("y"))))

    assert _waiting_for(stage, "x", "a") == [("w", "write")]
    assert _waiting_for(stage, "y", "b") == []


def test_a_child_does_not_wait_for_its_parents_lock() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("p", locks=(LockKey.write("x"),)), stage.new("q", locks=(LockKey.write("y"),)))

    child = stage.new("c", locks=(LockKey.write("x/below"), LockKey.write("y")))
    stage.answer("p", Suspended(state=b"", children=(child,)))

    assert _waiting_for(stage, "x", "p") == []
    assert _waiting_for(stage, "y", "q") == [("c", "write")]


# ---------------------------------------------------------------- locks of nobody
def test_stored_locks_that_agree_with_memory_are_not_dangling() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p", locks=(KEY,)))

    assert dangling(list(image_of(stage).locks.values()), stage.core.lock_holders(), stage.core.view) == []


def test_every_disagreement_about_a_lock_is_named() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p", locks=(KEY,)), stage.new("ended"))
    stage.answer("ended", DONE)

    def heads(id: str) -> ProcedureRecord | None:
        if id == "unreadable":
            raise StoreDamaged("damaged", reason="bad checksum")
        return stage.core.view(id)

    def row(path: str, holder: str, root: str = "") -> LockRecord:
        return LockRecord(path, LockMode.READ, holder, root or holder, 1.0)

    stored = [row("1", "ghost"), row("2", "ended"), row("3", "unreadable"), row("4", "p"), row("5", "p", "other")]

    reasons = {lock.path: reason for lock, reason in dangling(stored, stage.core.lock_holders(), heads)}
    wrong_mode = dangling([row("cat/t", "p")], stage.core.lock_holders(), heads)

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
def _declaring(stage: Stage, *names: str, **fields: object) -> None:
    for name in names:
        stage.submit(stage.new(name, unit="", poisons=("cat/t",), **fields))


def test_a_key_stays_poisoned_until_the_last_of_those_who_declared_it_is_known_to_be_clean() -> None:
    stage = _stage()
    _declaring(stage, "a", "b")

    stage.answer("a", Finished(state=b"", poisons=("cat/t",)))
    after_the_first = _poisons(stage)
    stage.answer("b", Finished(state=b"", poisons=("cat/t",)))

    assert after_the_first == {"cat/t": "b"}
    assert _poisons(stage) == {}


def test_a_later_poisoner_that_is_clean_first_leaves_the_key_to_the_earlier_one() -> None:
    stage = _stage()
    _declaring(stage, "a", "b")

    stage.answer("b", Finished(state=b"", poisons=("cat/t",)))

    assert image_of(stage).poisons["cat/t"].by == "a"
    assert image_of(stage).poisons["cat/t"].others == ()


def test_a_poisoner_that_failed_without_an_undo_keeps_the_key_when_the_other_one_ends_well() -> None:
    stage = Stage(workers=2)
    for name in ("a", "b"):
        stage.submit(stage.new(name, poisons=("cat/t",)))

    stage.answer("b", boom())
    stage.answer("a", Finished(state=b"", poisons=("cat/t",)))

    assert stage.resolved()["b"] is ProcedureState.FAILED
    assert _poisons(stage) == {"cat/t": "b"}
    assert "poisoned by b" in str(stage.submit(stage.new("c", locks=(KEY,))).error)


def test_all_who_poisoned_a_key_survive_a_restart_and_are_named_to_whom_it_is_refused() -> None:
    stage = Stage(workers=3)
    _declaring(stage, "a", "b", "c")

    core, _ = Coordinator.restore(image_of(stage).snapshot(), stage.now)

    poison = core._state.poisons["cat/t"]
    assert (poison.by, poison.others) == ("a", (("b", "b"), ("c", "c")))
    assert "poisoned by a: set by poison_keys() before a risky step (and by b, c)" in core._state.poison_notice("cat/t")


def test_a_key_shared_by_poisoners_is_cleared_for_all_of_them_by_the_operator() -> None:
    stage = _stage()
    _declaring(stage, "a", "b")

    assert _clear(stage, "cat/t")
    stage.answer("a", Finished(state=b"", poisons=("cat/t",)))

    assert _poisons(stage) == {}
    assert stage.submit(stage.new("c", locks=(KEY,))).error is None


def test_of_three_poisoners_the_first_that_is_clean_leaves_the_key_to_both_others() -> None:
    stage = _stage()
    stage.handle(WorkerReady(WorkerId(2, 1)))
    _declaring(stage, "a", "b", "c")

    stage.answer("a", Finished(state=b"", poisons=("cat/t",)))

    kept = image_of(stage).poisons["cat/t"]
    assert (kept.by, kept.others) == ("b", (("c", "c"),))


def test_who_finds_damage_where_others_poisoned_too_is_told_of_first_and_the_others_stay() -> None:
    stage = _stage()
    _declaring(stage, "a", "b")

    stage.answer("b", Poisoned(keys=("cat/t",), error=ErrorInfo("poisoned", "ValueError", "half written")))

    found = image_of(stage).poisons["cat/t"]
    assert (found.by, found.others, found.reason) == ("b", (("a", "a"),), "half written")
