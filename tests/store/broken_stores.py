"""Stores with one fault each, and the conformance suite on all of them. Run by `test_store_suite.py`; most must fail."""

from __future__ import annotations

import time

import pytest

from actorproc.errors import EngineError
from actorproc.store.memory import MemoryStore
from actorproc.store.rows import codec
from actorproc.store.rows.layout import EPOCH
from actorproc.store.rows.tables import Table
from actorproc.testing.store_suite import StoreSuite


class Sound(MemoryStore):
    """No fault."""


class LosesTheLastRow(MemoryStore):
    def _apply(self, rows):
        super()._apply(rows[:-1] if len(rows) > 1 else rows)


class AppliesBackwards(MemoryStore):
    def _apply(self, rows):
        super()._apply(list(rows)[::-1])


class DeletesAfterAllElse(MemoryStore):
    def _apply(self, rows):
        super()._apply(sorted(rows, key=lambda row: not isinstance(row[2], bytes | bytearray | int)))


class CommitsWriteByWrite(MemoryStore):
    def commit(self, writes, epoch, batch=0):
        self._check(epoch)
        for write in writes:
            super().commit([write], epoch, batch)


class ShowsHalfACommit(MemoryStore):
    def _apply(self, rows):
        half = len(rows) // 2
        super()._apply(rows[:half])
        self._rows._lock.release()
        time.sleep(0.002)
        self._rows._lock.acquire()
        super()._apply(rows[half:])


class ScansBackwards(MemoryStore):
    def scan(self, **filters):
        return iter(list(super().scan(**filters))[::-1])


class OrdersNumbersAsText(MemoryStore):
    def steps(self, id):
        return sorted(super().steps(id), key=lambda record: str(record.number))


class TakesAnyEpoch(MemoryStore):
    def _check(self, epoch):
        if not self._owned:
            raise EngineError("no owner")


class KeepsItsEpoch(MemoryStore):
    def own(self):
        super().own()
        self._rows._tables[Table.META].update(self.__dict__.setdefault("_first", dict(self._rows._tables[Table.META])))
        return 1


class ForgetsTheBatch(MemoryStore):
    def commit(self, writes, epoch, batch=0):
        super().commit(writes, epoch)


class NumbersGoOnWithTheNextOwner(MemoryStore):
    def own(self):
        before = self.load().batch
        epoch = super().own()
        super().commit([], epoch, before)
        return epoch


class AnswersFromACache(MemoryStore):
    def procedure(self, id, *, removed=False):
        cache = self.__dict__.setdefault("_cache", {})
        if id not in cache:
            cache[id] = super().procedure(id, removed=removed)
        return cache[id]


class GivesBackTheObjectItWasGiven(MemoryStore):
    def commit(self, writes, epoch, batch=0):
        super().commit(writes, epoch, batch)
        heads = [write.record for write in writes if type(write).__name__ == "PutProcedure"]
        self.__dict__.setdefault("_given", {}).update({head.id: head for head in heads})

    def procedure(self, id, *, removed=False):
        found = super().procedure(id, removed=removed)
        return found and self.__dict__.get("_given", {}).get(id, found)


class TakesIdsThatBeginAlike(MemoryStore):
    def steps(self, id):
        return [record for name in self.ids(id) for record in super(TakesIdsThatBeginAlike, self).steps(name)]


class LosesTheLastCommitAtReopen(MemoryStore):
    def commit(self, writes, epoch, batch=0):
        self._before = self._rows.copy()
        super().commit(writes, epoch, batch)

    def reopen(self):
        self._rows = self._before


class IsForgotten(MemoryStore):
    def clone(self):
        return type(self)()


class ListsFinishedRootsWithoutABound(MemoryStore):
    def finished(self, *, before=None, **how):
        return super().finished(**how)


class ListsWhatIsRemoved(MemoryStore):
    def procedure(self, id, *, removed=False):
        return super().procedure(id, removed=True)


class DropsLocksToSaveSpace(MemoryStore):
    def compact(self):
        self._rows._tables[Table.LOCKS].clear()
        return super().compact()


class HasANewNameEachTime(MemoryStore):
    def own(self):
        self._names = iter("ab")
        return super().own()

    @property
    def store_id(self):
        return next(self._names, "c")


class GivesNumbersTwice(MemoryStore):
    def _apply(self, rows):
        super()._apply([row for row in rows if not isinstance(row[2], int)])


class LeavesTheLogOfWhatIsRemoved(MemoryStore):
    def _apply(self, rows):
        super()._apply([row for row in rows if row[2] is None or isinstance(row[2], bytes | bytearray | int)])


class NeverTakesAnIndexRowBack(MemoryStore):
    def _apply(self, rows):
        super()._apply([row for row in rows if row[2] is not None or row[0] is not Table.TAGS])


class LosesLongNames(MemoryStore):
    def events(self, target):
        return super().events(target[:4000])


class MixesStatesUp(MemoryStore):
    def states(self, wanted):
        return {key: self.step(*wanted[0]) or record for key, record in super().states(wanted).items()}


class ForgetsTreesAfterAMissingOne(MemoryStore):
    def finished_trees(self, roots, limit):
        found = super().finished_trees(roots, limit)
        return found[: found.index(None)] if None in found else found


class CountsByTheMoment(MemoryStore):
    def count_states(self):
        return {state: count for state, count in super().count_states().items() if count > 1}


class ForgetsWhoOwnsIt(MemoryStore):
    def reopen(self):
        pass


SOUND = [Sound]
BROKEN = [found for found in MemoryStore.__subclasses__() if found.__module__ == __name__ and found not in SOUND]


class OnAStore(StoreSuite):
    kind = Sound

    @pytest.fixture
    def make_store(self):
        made = []

        def make():
            made.append(made[-1].clone() if made else self.kind())
            return made[-1]

        return make

    @pytest.fixture
    def depose(self):
        def take_over(store):
            with store._rows:
                later = codec.encode(Table.META, EPOCH, store.load().epoch + 1)
                store._rows.put(Table.META, EPOCH, later)

        return take_over


for _kind in SOUND + BROKEN:
    globals()[f"Test{_kind.__name__}"] = type(f"Test{_kind.__name__}", (OnAStore,), {"kind": _kind})
