"""One procedure class at work: describes new procedures, loads states, runs steps and says how they ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from actorproc.errors import InvalidStatus, StateNotEncodable, UsageError, ValueNotDecodable, WaitTimeout
from actorproc.model.exact import as_plain, exact_text
from actorproc.model.ids import Mode, check_id, child_id, new_id
from actorproc.model.messages.outcomes import (
    Advanced,
    Answered,
    Failed,
    Finished,
    Outcome,
    Poisoned,
    Refused,
    Renewed,
    Slept,
    StepRequests,
    Suspended,
    Waited,
)
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.records import NewProcedure
from actorproc.procedure.authoring.context import Context, StopStep
from actorproc.procedure.authoring.dropped_work import dropped_work
from actorproc.procedure.authoring.keys import limit_keys_of, lock_keys_of, poison_keys_of
from actorproc.procedure.authoring.procedure import Procedure, refuse_unrun
from actorproc.procedure.authoring.status import Done, Executing, Poisoning, Renewing, Sleeping, Suspending, Waiting
from actorproc.procedure.declaring import unsubmitted
from actorproc.procedure.declaring.searchable import texts_of
from actorproc.procedure.declaring.signatures import is_of_own_signature
from actorproc.procedure.declaring.step_policies import retry_of
from actorproc.procedure.encoding.digest import digest_of
from actorproc.procedure.encoding.original_errors import dump_exception, exceptions_among, load_exception
from actorproc.procedure.encoding.signing import SigningKey, signed_state, verified
from actorproc.procedure.encoding.state import StateRefused, format_of, of_another_kind
from actorproc.procedure.encoding.value_codec import OUTPUT, PAYLOAD, REPLY, ValueCodec
from actorproc.procedure.runtime.async_steps import run_to_end, tell_failed_abort, tell_failed_clean_up
from actorproc.procedure.runtime.classes import check_class, meta_of, meta_of_loader
from actorproc.procedure.values.codec import DataCodec
from actorproc.procedure.values.error_text import error_info, in_words
from actorproc.procedure.values.evolution import left_in_plain_form, without_unset
from actorproc.procedure.values.members import called, class_hook, hook, option, overrides

__all__ = ["StateRefused", "TypeRuntime"]

R = TypeVar("R")
Loader = Callable[[Any], Procedure]
Ended = tuple[Outcome, tuple[type, ...]]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_EXECUTE = Mode.EXECUTE
_encode = msgspec.msgpack.Encoder().encode
_enveloped = msgspec.msgpack.Decoder(tuple[Any, msgspec.Raw])
_decode = msgspec.msgpack.Decoder().decode
# First bytes: a pair is a position and the rest, a map is dumped fields, else it is what an overridden dump() gave.
_PAIR = b"\x92"
_MAP = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))


_MISSED = "the event it waited for did not come in time"
_NO_CHILDREN_TWICE = (
    "Status.suspended was given no children twice in a row, with an equal state, so this step would be repeated for "
    "ever; to tell the step that starts children from those behind it, test ctx.step or a field in place of "
    "ctx.children"
)


class TypeRuntime:
    """Runtime of one registered class, or of one loader.

    ``meta`` is read from the class once, here. ``revision`` grows when a class replaces another of its name.
    """

    def __init__(
        self, type_name: str, cls: type[Procedure] | None, loader: Loader | None, key: SigningKey | None
    ) -> None:
        self.type_name = type_name
        self.procedure_class = cls
        self.loader = loader
        self.signing_key = key
        self.revision = 1
        self.shipped: frozenset[Any] | None = None
        """Classes and functions of the program's script that a worker gets with this one, once that is known."""
        self.meta = meta_of_loader(type_name) if cls is None else meta_of(cls, type_name)
        self.codec = DataCodec(type_name) if cls is None else format_of(cls).codec
        self.values = ValueCodec(self.codec, key, pickles=self.meta.codec == "pickle")
        """Codec of outputs, notes and payloads."""
        self._relatives: dict[type, TypeRuntime] = {}
        self._searchable: tuple[str, ...] = ()
        self._exceptions = {} if cls is None else exceptions_among(option(cls, "uses"))
        """Exception classes that come back to callers as objects."""
        self._retry, self._rollback_retry = option(Procedure, "retry"), option(Procedure, "rollback_retry")
        if cls is not None:
            self._read_class(cls)

    def _read_class(self, cls: type[Procedure]) -> None:
        self._format = format_of(cls)
        self.codec.of_calls = bool(cls._engine_tail)
        self._state_codec = self.meta.codec
        # Decided once: no step looks for options and hooks, which fields and steps may hide.
        self._dumps_fields = not overrides(cls, Procedure, "dump") and self._state_codec == "data"
        self._has_position = cls._engine_has_position
        self._locks = overrides(cls, Procedure, "lock_keys")
        self._poisons = overrides(cls, Procedure, "poison_keys")
        self._limit_keyed = overrides(cls, Procedure, "limit_keys")
        self._recovers = any(overrides(cls, Procedure, name) for name in ("before_recover", "after_recover"))
        self._cleans_up = overrides(cls, Procedure, "on_completed")
        self._retry, self._rollback_retry = option(cls, "retry"), option(cls, "rollback_retry")
        self._execute = hook(cls, "execute")
        self._searchable = option(cls, "searchable")
        self._version = self.meta.version
        self._load_state, self._migrate = class_hook(cls, "load"), class_hook(cls, "migrate")
        self._plain_unit = None if self._has_position else ("" if self.meta.rollback_supported else None)

    @classmethod
    def of_class(cls, procedure_class: Any, *, signing_key: SigningKey | None = None) -> TypeRuntime:
        """The runtime of a class. Raises `UsageError` saying what the class lacks."""
        if not isinstance(procedure_class, type) or not issubclass(procedure_class, Procedure):
            msg = f"{procedure_class!r} is no class derived from actorproc.Procedure"
            raise UsageError(msg)
        check_class(procedure_class, signing_key)
        return cls(exact_text(option(procedure_class, "type_name")), procedure_class, None, signing_key)

    @classmethod
    def of_loader(cls, type_name: Any, loader: Any) -> TypeRuntime:
        """The runtime of a type that is known by its loader alone."""
        if not isinstance(type_name, str) or not type_name:
            msg = f"a loader is registered under a type name, not {type_name!r}"
            raise UsageError(msg)
        if not callable(loader):
            msg = f"the loader of {type_name!r} must be a function of the dumped state, not {loader!r}"
            raise UsageError(msg)
        return cls(exact_text(type_name), None, loader, None)

    # ------------------------------------------------------------ procedures to bytes and back
    def describe(
        self,
        procedure: Procedure,
        *,
        id: str | None = None,
        fresh: bool = False,
        owner: str | None = None,
        priority: int = 0,
        due_at: float | None = None,
        deadline: float | None = None,
        tags: tuple[str, ...] = (),
    ) -> NewProcedure:
        """The procedure as it is stored at first. Without an id it gets a new UUIDv7.

        Raises `StateNotEncodable`, `StateTooLarge`, `InvalidId`, and `UsageError` for bad lock or poison keys.
        """
        own = self._of(procedure)
        if unsubmitted.watched:
            unsubmitted.use(procedure)
        name = new_id() if id is None else check_id(id)
        state = own.dump_state(procedure, name)
        codec = own._state_codec
        # In two calls: to name all fields in one takes twice the time.
        described = msgspec.structs.replace(
            NewProcedure(
                id=name,
                fresh=fresh or id is None,
                type_name=self.type_name,
                version=own.meta.version,
                state=state,
                codec=codec,
                digest=digest_of(codec, state, positioned=own._has_position, ordered=own._format.names is not None)
                if procedure._engine_is_compared
                else b"",
            ),
            locks=lock_keys_of(procedure, own.type_name) if own._locks else (),
            poisons=poison_keys_of(procedure, own.type_name) if own._poisons else (),
            limit_keys=limit_keys_of(procedure, own.type_name) if own._limit_keyed else (),
            **own._next_facts(procedure),
            owner=owner,
            priority=priority,
            due_at=due_at,
            deadline=deadline,
            tags=tags,
        )
        if not own._searchable:
            return described
        return msgspec.structs.replace(described, searchable=texts_of(procedure, own._searchable))

    def dump_state(self, procedure: Procedure, id: str = "") -> bytes:
        """The bytes of the state as stored; a pickled one is signed for the procedure of this id."""
        if unsubmitted.watched:
            unsubmitted.keep(procedure)
        payload = self._format.dump_fields(procedure) if self._dumps_fields else self._dump_custom(procedure, id)
        if self._has_position:
            return _encode((procedure._engine_position(), msgspec.Raw(payload)))
        return payload

    def load(
        self,
        state: bytes | memoryview,
        codec: str,
        version: int,
        id: str = "",
    ) -> Procedure:
        """The procedure of a stored state, through `migrate` and `load` (or the loader).

        Raises `StateRefused`, or `MemoryError`.
        """
        try:
            return self._load(state, codec, version, id)
        except (StateRefused, MemoryError):
            raise
        except Exception as error:
            # load, migrate and __setattr__ are user code: whatever they raise is a refusal with that reason.
            msg = in_words(error) if not isinstance(error, ValueNotDecodable) else str(error)
            raise StateRefused(f"{self.type_name} refuses the stored state: {msg}") from error

    @staticmethod
    def stored_position(state: bytes) -> Any:
        """Position of a stored saga or machine, as plain data and without its class; None for others."""
        return _enveloped.decode(state)[0] if state[:1] == _PAIR else None

    def runtime_of(self, live: Procedure) -> TypeRuntime:
        """The runtime of the object's own class: a loader gives objects of any. Raises `UsageError`."""
        return self._of(live)

    def encode_value(self, value: object, id: str = "") -> bytes:
        """The payload of a signal to the procedure of this id. Raises `StateNotEncodable` or `StateTooLarge`."""
        return self.values.encode(value, f"payload to {id} ({self.type_name})" if id else "payload", PAYLOAD + id)

    def decode_output(self, data: bytes, id: str = "") -> Any:
        """The output of the procedure of this id. Raises `ValueNotDecodable`."""
        return self.values.decode(data, OUTPUT + id) if data else None

    def decode_reply(self, data: bytes, id: str) -> Any:
        """The reply of the procedure of this id to an ask. Raises `ValueNotDecodable`."""
        return self.values.decode(data, REPLY + id)

    def original(self, data: bytes) -> BaseException | None:
        """The exception of a step that was kept as data; None when it is of no class that this class `uses`."""
        return load_exception(data, self._exceptions, self.codec) if self._exceptions else None

    # ------------------------------------------------------------ steps
    def run(self, live: Procedure, ctx: Context, mode: Mode, unit: str | None, event: bytes | None) -> Ended:
        """Run one step; the outcome holds the state after it. The second item: classes of the children it made.

        Never raises what user code raises, `SystemExit` included; only `StopStep` passes. An attempt that asked for a
        stored value which cannot be read is given up, whatever the step made of that.
        """
        own = self if type(live) is self.procedure_class else self._of(live)
        if own.meta.tasks:
            return run_to_end(own, live, ctx, mode, unit, event)
        if own._has_position:
            ctx._live = live
        ctx._runtime = own
        try:
            if ctx._around is None:
                ended = own._ran(live, ctx, mode, unit, event)
            else:
                ended = ctx._around(ctx, lambda: own._ran(live, ctx, mode, unit, event))
        except StopStep:
            raise
        except StateRefused as error:
            ended = Refused(reason=error.reason), ()
        except BaseException as error:  # noqa: BLE001 - every exception of user code is an outcome, exits included
            ended = own.failed(error, ctx, mode, live), ()
        ctx._runtime = None
        if ctx._unreadable is not None:
            return Refused(reason=ctx._unreadable[0], needs=ctx._unreadable[1]), ()
        return ended if ctx._requests is None else ctx._requests.added_to(*ended)

    def _ran(self, live: Procedure, ctx: Context, mode: Mode, unit: str | None, event: bytes | None) -> Ended:
        if event is not None:
            ctx._take_event(event, self.values)
        is_forward = mode is _EXECUTE or mode is Mode.ON_TIMEOUT
        if self._has_position and is_forward and live._engine_is_moved() and (early := self._settled(live, ctx, mode)):
            return early
        if mode is _EXECUTE:
            execute = self._execute
            status = self._recovering(live, ctx, execute) if self._recovers else execute(live, ctx)
            return self._outcome(live, ctx, status)
        if mode is Mode.ROLLBACK:
            undo, unit = type(live)._engine_undo, unit or ""
            undone = self._recovering(live, ctx, undo, unit) if self._recovers else undo(live, ctx, unit)
            return self._undone(live, ctx, unit, undone), ()
        if mode is Mode.ASK_ABORT:
            return self._asked(live, ctx), ()
        return self._on_timeout(live, ctx)

    def _settled(self, live: Procedure, ctx: Context, mode: Mode) -> Ended | None:
        """Have the step stand where today's code would go on; an end in the place of one that does not begin."""
        try:
            live._engine_settle()
        except StateRefused as error:
            return Refused(reason=error.reason, is_unbegun=mode is _EXECUTE), ()
        return (self._placed(live, ctx), ()) if mode is _EXECUTE else None

    def _placed(self, live: Procedure, ctx: Context) -> Outcome:
        """Nothing was run: the engine hears first which step comes next, and what undoes it."""
        state = self.dump_state(live, ctx.id)
        return Advanced(state=state, placed=True, requests=self._searched(live), **self._next_facts(live))

    def _searched(self, live: Procedure) -> StepRequests | None:
        """The texts of its searchable fields, as they are in the state that was just dumped; None: it has none."""
        return StepRequests(searchable=texts_of(live, self._searchable)) if self._searchable else None

    def _next_facts(self, live: Procedure) -> dict[str, Any]:
        """Facts of the step that comes next, as outcomes have them."""
        if not self._has_position:
            return {"unit": self._plain_unit}
        return dict(zip(("unit", "no_return", "step_name"), live._engine_next(), strict=True))

    def _recovering(self, live: Procedure, ctx: Context, call: Callable[..., R], *more: str) -> R:
        """Call user code, between the recovery hooks when it may have half run or comes from the log."""
        if not self._recovers or not (ctx.replayed or ctx.recovered):
            return call(live, ctx, *more)
        cls = type(live)
        refuse_unrun(hook(cls, "before_recover")(live, ctx), "before_recover()")
        result = call(live, ctx, *more)
        refuse_unrun(hook(cls, "after_recover")(live, ctx), "after_recover()")
        return result

    def _asked(self, live: Procedure, ctx: Context) -> Outcome:
        with tell_failed_abort(ctx, self.type_name):
            refuse_unrun(answer := hook(type(live), "abort")(live, ctx), "abort()")
            return Answered(allowed=bool(answer))

    def _on_timeout(self, live: Procedure, ctx: Context) -> Ended:
        status = self._recovering(live, ctx, type(live)._engine_on_timeout)
        return (self._missed(ctx), ()) if status is None else self._outcome(live, ctx, status)

    @staticmethod
    def _missed(ctx: Context) -> Outcome:
        return Failed(error=error_info(WaitTimeout(_MISSED), procedure=ctx.id, step=ctx.step, kind="wait-timeout"))

    def _undone(self, live: Procedure, ctx: Context, unit: str, status: object) -> Outcome:
        if status is None or isinstance(status, Done):
            state = self.dump_state(live, ctx.id)
            return Finished(state=state, poisons=self._poisons_after(live), requests=self._searched(live))
        if isinstance(status, Executing):
            return Advanced(
                state=self.dump_state(live, ctx.id),
                unit=unit,
                poisons=self._poisons_after(live),
                persist=status.persist,
                yield_=status.yield_,
                after=status.after,
                requests=self._searched(live),
            )
        msg = f"a rollback returns None, Status.done() or Status.executing(), not {status!r:.120}"
        raise InvalidStatus(msg)

    def _outcome(self, live: Procedure, ctx: Context, status: object) -> Ended:
        if type(status) is Done:
            return self._finished(live, ctx, status), ()
        state, poisons = self.dump_state(live, ctx.id), self._poisons_after(live) if self._poisons else None
        requests = self._searched(live) if self._searchable else None
        if type(status) is Executing:
            unit, no_return, name = live._engine_next() if self._has_position else (self._plain_unit, False, None)
            advanced = Advanced(
                state=state,
                unit=unit,
                no_return=no_return or status.no_return,
                poisons=poisons,
                persist=status.persist,
                yield_=status.yield_,
                after=status.after,
                acquire=status.acquire,
                step_name=name,
                requests=requests,
            )
            return advanced, ()
        common = {"state": state, "poisons": poisons, "requests": requests, **self._next_facts(live)}
        if isinstance(status, Suspending):
            return self._suspended(ctx, status, common)
        if isinstance(status, Sleeping):
            return Slept(**common, seconds=status.seconds, until=status.until), ()
        if isinstance(status, Waiting):
            return Waited(**common, event=status.event, timeout=status.timeout), ()
        if isinstance(status, Renewing):
            return self._renewed(live, ctx, status, state, requests), ()
        if isinstance(status, Poisoning):
            error = error_info(status.error, procedure=ctx.id, step=ctx.step, kind="poisoned")
            return Poisoned(**common, keys=status.keys, error=error), ()
        problem = dropped_work(status) or (
            f"returned {status!r:.120} where a Status is due; "
            "end with 'return Status.done(output)' or 'return Status.executing()'"
        )
        msg = f"{type(live).__qualname__} {problem}"
        raise InvalidStatus(msg)

    def _finished(self, live: Procedure, ctx: Context, status: Done) -> Finished:
        output = self.values.encode(status.output, f"{self.type_name} output", OUTPUT + ctx.id)
        state = b"" if live._engine_ends_stateless else self.dump_state(live, ctx.id)
        poisons = self._poisons_after(live)
        requests = self._searched(live) if self._searchable else None
        if self._cleans_up and not self.meta.tasks:
            # Last: what was cleaned up must not be undone for a value that cannot be kept.
            after = self._cleaned_up(live, ctx)
            state, requests = after if after is not None else (state, requests)
        return Finished(state=state, poisons=poisons, output=output, is_spent=live._engine_is_spent, requests=requests)

    def _renewed(
        self, live: Procedure, ctx: Context, status: Renewing, state: bytes, ended: StepRequests | None
    ) -> Renewed:
        fresh: Procedure = status.state
        if type(fresh) is not type(live):
            msg = f"Status.again(state) takes a {type(live).__qualname__} in a step of one, not {fresh!r:.80}"
            raise InvalidStatus(msg)
        fresh._engine_rewind()
        return Renewed(
            state=state,
            fresh=self.dump_state(fresh, ctx.id),
            **self._next_facts(fresh),
            poisons=poison_keys_of(fresh, self.type_name) if self._poisons else None,
            locks=lock_keys_of(fresh, self.type_name) if self._locks else (),
            requests=self._searched(fresh),
            searchable=() if ended is None else ended.searchable,
        )

    def _suspended(self, ctx: Context, status: Suspending, common: dict[str, Any]) -> Ended:
        if not status.children and ctx._before == common["state"] and not ctx.children:
            raise InvalidStatus(_NO_CHILDREN_TWICE)
        described: list[NewProcedure] = []
        classes: dict[type, None] = {}
        for index, (given, child) in enumerate(status.children):
            runtime = self._of(child)
            name = child_id(ctx.id, ctx.step, index, ctx.generation) if given is None else given
            described.append(runtime.describe(child, id=name, fresh=given is None))
            classes[type(child)] = None
        suspended = Suspended(
            **common,
            children=tuple(described),
            wait=status.resume,
            max_parallel=status.max_parallel,
            on_parent_end=status.on_parent_end,
        )
        return suspended, tuple(classes)

    def failed(self, error: BaseException, ctx: Context, mode: Mode, live: Procedure) -> Failed:
        """The outcome of a step that raised this; whether it is tried again is the class's to say."""
        unsubmitted.forget()
        policy = self._rollback_retry if mode is Mode.ROLLBACK else retry_of(live, self._retry)
        retryable, after = policy.judge(error)
        if retryable and is_of_own_signature(error, type(live)):
            retryable = False
        info = error_info(error, procedure=ctx.id, step=ctx.step)
        pickled = live._engine_pickled_failure(error, ctx.id)
        if not pickled and self._exceptions:
            pickled = dump_exception(error, self._exceptions, self.codec)
        if pickled:
            info = msgspec.structs.replace(info, pickled=pickled)
        return Failed(error=info, retryable=retryable, after=after)

    def dumps_as(self, live: Procedure) -> TypeMeta:
        """The traits of the class of this object, which dumps the state; a loader gives objects of any class."""
        try:
            return self._of(live).meta
        except UsageError:  # it cannot be run, as its step was told
            return self.meta

    def _of(self, procedure: Procedure) -> TypeRuntime:
        """The runtime of this object's class: this one, or that of a child or of what a loader made."""
        cls = type(procedure)
        if cls is self.procedure_class:
            return self
        found = self._relatives.get(cls)
        if found is None:
            found = self._relatives[cls] = TypeRuntime.of_class(cls, signing_key=self.signing_key)
        return found

    def _load(self, state: bytes | memoryview, codec: str, version: int, procedure: str) -> Procedure:
        if codec != "pickle":
            state = bytes(state)  # a class's own `load` takes nothing else
        payload = state
        position = None
        if state[:1] == _PAIR:
            position, raw = _enveloped.decode(state)
            payload = bytes(raw)
        data: Any = None
        if codec == "pickle":
            tail = "" if self.procedure_class is None else self.procedure_class._engine_tail
            data = verified(payload, self.type_name, procedure, self.signing_key, tail)
        elif codec == "data":
            data = payload if payload[:1] and payload[0] in _MAP else _decode(payload)
        else:
            msg = f"the state was written by the codec {codec!r}, which this version does not know"
            raise StateRefused(msg)
        live = self._checked(self._loaded(data, version, is_fields=data is payload))
        live._engine_take_key(self.signing_key)
        if live._engine_has_position:
            if position is None:
                raise StateRefused(of_another_kind(self.type_name, "no position"))
            live._engine_restore(position)
        elif position is not None:
            raise StateRefused(of_another_kind(self.type_name, "a position"))
        return live

    def _loaded(self, data: Any, version: int, *, is_fields: bool) -> Any:
        if self.loader is not None:
            return self.loader(data)
        assert self.procedure_class is not None, self.type_name
        if version != self._version:
            data = self._migrated(data, version, is_fields=is_fields)
        return self._load_state(data)

    def _migrated(self, data: Any, version: int, *, is_fields: bool) -> Any:
        """Result of `migrate` for an older state; values inside that no class can make come to it in plain form."""
        if is_fields:
            data, _ = self.codec.decode_plain(data)
        data = self._migrate(without_unset(data), version)
        if (left := left_in_plain_form(data)) is not None:
            msg = f"migrate() left a value of {left.class_name!r} in plain form, which no class of today can make"
            raise StateRefused(msg)
        return data

    def _checked(self, loaded: Any) -> Procedure:
        if isinstance(loaded, Procedure):
            return loaded
        msg = f"the loader of {self.type_name} returned {loaded!r:.80}, which is no Procedure"
        raise StateRefused(msg)

    def _dump_custom(self, procedure: Procedure, id: str) -> bytes:
        if self._state_codec == "pickle":
            return signed_state(
                self._format.values(procedure), self.type_name, id, self.signing_key, procedure._engine_tail
            )
        dumped: object = called(procedure, "dump")
        if not isinstance(dumped, bytes | str):
            msg = f"{type(procedure).__qualname__}.dump() returned {type(dumped).__name__}; it must return bytes or str"
            raise StateNotEncodable(msg)
        return self.codec.encode(as_plain(dumped), type(procedure).__qualname__)

    def _poisons_after(self, live: Procedure) -> tuple[str, ...] | None:
        return poison_keys_of(live, self.type_name) if self._poisons else None

    def _cleaned_up(self, live: Procedure, ctx: Context) -> tuple[bytes, StepRequests | None] | None:
        """The state after `on_completed`, and what it is found by; None when that failed, or it cannot be kept."""
        after = None
        with tell_failed_clean_up(ctx, self.type_name):
            refuse_unrun(hook(type(live), "on_completed")(live, ctx), "on_completed()")
            after = self.dump_state(live, ctx.id), self._searched(live)
        return after  # noqa: RET504 - what failed is logged
