"""Heads and trees in memory, and what the index rows of the store say of them."""

from __future__ import annotations

from actorproc.core.state.tree import Tree
from actorproc.model.rows.cold_trees import debounce_of
from actorproc.model.rows.records import CHILD_STATES, ProcedureRecord, copied
from actorproc.model.rows.writes import Was
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["ResidentSet"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_RUNNABLE = ProcedureState.RUNNABLE
_CHILD_PLACE: dict[str, int] = {state.value: place for place, state in enumerate(CHILD_STATES)}
# By value: the hash of a member is Python code.
_NO_CHILDREN = (0,) * len(CHILD_STATES)
_WAS_RUNNABLE = Was(_RUNNABLE, None, None)


class ResidentSet:
    """Part of the `EngineState`: heads and trees."""

    def __init__(self) -> None:
        self.procs: dict[str, ProcedureRecord] = {}
        self.trees: dict[str, Tree] = {}
        self.stored: dict[str, Was] = {}
        """State and times by procedure, as they were written last."""
        self.open_roots = 0
        """Roots that have not ended, in memory or not."""
        self.debounced: dict[str, str] = {}
        """Newest root by key of its debounce, where it is in memory. Those that wait are."""
        self.overdue: dict[str, None] = {}
        """Debounced roots whose time is over, and that wait until steps are handed out."""
        self.unsettled: dict[str, None] = {}
        """Roots of trees that may leave memory: looked at when what changed them is stored."""

    # ------------------------------------------------------------------ looking
    def tree_of(self, record: ProcedureRecord) -> Tree:
        """The tree of a resident procedure."""
        return self.trees[record.root]

    def has_no_return(self, record: ProcedureRecord) -> bool:
        """True if the tree is past its point of no return. Members that outlive their root are on their own again."""
        root = self.procs[record.root]
        return root.no_return and root.state not in TERMINAL

    def shows_abort(self, record: ProcedureRecord) -> bool:
        """`Context.aborting` of a step that goes out now: True when an abort was asked and may have an effect."""
        return record.aborting and not record.rolling and not self.has_no_return(record)

    def place_of(self, procedure: str) -> int:
        """Number of a procedure's tree in submit order. It decides between procedures that have waited equally long."""
        return self.procs[self.procs[procedure].root].seq

    # ------------------------------------------------------------------ coming
    def add(self, record: ProcedureRecord, *, stored: bool) -> Tree:
        """Make a head resident; `stored` says that the store has it as it is."""
        tree = self.trees.get(record.root)
        if tree is None:
            tree = self.trees[record.root] = Tree(record.root)
        if stored:
            self.stored[record.id] = Was.of(record)
            if record.state is not _RUNNABLE:
                self.unsettled[record.root] = None
        self.procs[record.id] = record
        tree.add(record)
        if record.undoing:
            tree.undoing = record.id
        if record.paused is not None or record.retaking or tree.still:
            tree.note_still(record)
        return tree

    def admit_alone(self, record: ProcedureRecord) -> None:
        """Make a stored head resident that is a tree by itself and only waits for its turn: most are, at a start."""
        self.trees[record.root] = Tree(record.root, record)
        self.procs[record.id] = record
        self.stored[record.id] = Was.of(record) if record.tags or record.searchable else _WAS_RUNNABLE

    def make_resident(self, record: ProcedureRecord) -> None:
        """Have one of the cold run queue in memory. It keeps its place there, and nothing is decided."""
        if record.id not in self.procs:
            self.admit_alone(copied(record))  # that one may be about to be stored

    def drop_debounce(self, record: ProcedureRecord) -> None:
        """Forget that it is the newest root of its key, and that it is overdue."""
        self.overdue.pop(record.id, None)
        mark = debounce_of(record)
        if mark is not None and self.debounced.get(mark.key) == record.id:
            del self.debounced[mark.key]

    def count_roots(self, change: int) -> None:
        """Add `change` to the number of roots that have not ended."""
        self.open_roots += change

    # ------------------------------------------------------------------ what the store has
    def note_stored(self, record: ProcedureRecord, was: Was | None) -> None:
        """Note what the store's index rows will say of a head, and whether its root has ended."""
        texts = () if record.past is None else record.past.searchable
        if record.state is _RUNNABLE and record.due_at is None and not record.tags and not texts:
            self.stored[record.id] = _WAS_RUNNABLE
        else:  # by position: half the time
            self.stored[record.id] = Was(record.state, record.due_at, record.finished_at, record.tags, texts)
        if record.parent is None:
            was_open = was is not None and was.state not in TERMINAL
            self.open_roots += (record.state not in TERMINAL) - was_open

    def count_children(self, touched: dict[str, ProcedureRecord]) -> None:
        """Keep the numbers of children by state in the heads of those whose children are in another state now."""
        stored, procs = self.stored, self.procs
        changed: dict[str, list[int]] = {}
        for name, record in touched.items():
            above = record.parent
            if above is None or above not in procs:
                continue
            was = stored[name] if name in stored else None  # noqa: SIM401 - a call for each child otherwise
            parent = procs[above]
            if (was is not None and was.state is record.state) or parent.child_states is None:
                continue
            if parent.past is not None and record.seq < parent.renewed:
                continue
            if above not in changed:
                changed[above] = [*(parent.child_states or _NO_CHILDREN)]
            counts = changed[above]
            if was is not None:
                counts[_CHILD_PLACE[was.state._value_]] -= 1
            counts[_CHILD_PLACE[record.state._value_]] += 1
        for above, counts in changed.items():
            parent = touched[above] = procs[above]
            parent.child_states = (*counts,)
