"""The live screen: panes of one look at a store, refreshed while they are shown, and the verbs of an operator."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from msgspec.structs import replace
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.widgets import Input

from actorproc.ui.text import wrapped
from actorproc.ui.top.actions import Action, carry_out
from actorproc.ui.top.dialogs import ActionMenu, Help, Question
from actorproc.ui.top.look import DETAILS, Detail, Look, Pane, Wanted
from actorproc.ui.top.rendering import (
    GROUPS,
    GROUPS_DROP,
    HOSTS,
    HOSTS_DROP,
    PROCEDURES,
    PROCEDURES_DROP,
    WORKERS,
    WORKERS_DROP,
    Row,
    group_cells,
    header_lines,
    host_cells,
    procedure_cells,
    title_parts,
    worker_cells,
)
from actorproc.ui.top.table import Lines, RowTable
from actorproc.ui.views.header import header_of
from actorproc.ui.views.rows import SORTS, sorted_rows

__all__ = ["FilterParser", "LookSource", "TopApp"]

FilterParser = Callable[[str], tuple[dict[str, Any], str]]
"""Makes of a line the arguments of `list`, and the text to look for. Raises `ValueError` with what is wrong."""
_PREFIXED: dict[str, Pane] = {"n": "now", "p": "procedures", "l": "locks", "a": "activity", "h": "hosts", "o": "now"}
_TABLES: dict[Pane, tuple[str, ...]] = {
    "now": ("workers", "rows", "groups"),
    "procedures": ("rows",),
    "hosts": ("hosts",),
}
"""Tables of the panes that have other ones than lines."""
_MOST = 1000
"""Rows of a list; the filter finds what is behind them."""
_PAGE = 100
_RECORD = re.compile(r"record (\d+)")


class LookSource(Protocol):
    """Answers questions about a store; used by one thread at a time."""

    @property
    def path(self) -> str:
        """Of the store."""
        ...

    def look(self, wanted: Wanted) -> Look:
        """One look."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


class TopApp(App[None]):
    """The screen.

    Args:
        source: of the looks.
        every: seconds between two looks.
        parse: of the filter line.
        is_read_only: no verb is offered.
    """

    CSS = """
    Screen { layout: vertical; background: ansi_default; color: ansi_default; }
    #header { height: 3; }
    #title, #footer { height: 1; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    RowTable { height: 1fr; }
    #workers { max-height: 35%; }
    #groups { max-height: 30%; }
    ModalScreen { align: center middle; background: ansi_default; }
    ModalScreen > Vertical, ModalScreen > VerticalScroll {
        width: 76; max-width: 100%; height: auto; max-height: 100%; border: solid ansi_default; padding: 0 1;
    }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("q", "leave", show=False),
        Binding("1", "go('now')", show=False),
        Binding("2", "go('procedures')", show=False),
        Binding("3", "go('locks')", show=False),
        Binding("4", "go('activity')", show=False),
        Binding("5", "go('hosts')", show=False),
        Binding("g", "prefix", show=False),
        Binding("slash", "filter", show=False),
        Binding("z", "sort", show=False),
        Binding("p", "hold", show=False),
        Binding("a", "act", show=False),
        Binding("question_mark", "help", show=False),
        Binding("escape", "back", show=False),
        Binding("tab", "next(1)", show=False, priority=True),
        Binding("shift+tab", "next(-1)", show=False, priority=True),
        Binding("w", "detail('why')", show=False),
        Binding("t", "detail('tree')", show=False),
        Binding("s", "detail('stack')", show=False),
        Binding("o", "detail('logs')", show=False),
        Binding("e", "detail('steps')", show=False),
        Binding("y", "detail('state')", show=False),
        Binding("left_square_bracket", "record(-1)", show=False),
        Binding("right_square_bracket", "record(1)", show=False),
    ]

    def __init__(
        self, source: LookSource, *, every: float = 1.0, parse: FilterParser | None = None, is_read_only: bool = False
    ) -> None:
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self._source = source
        self._every = every
        self._parse = parse
        self._is_read_only = is_read_only
        self._wanted = Wanted(limit=_PAGE)
        self._filter_line = ""
        self._sort = "trouble"
        self._is_asking = False
        self._again = False
        self._is_held = False
        self._is_prefixed = False
        self._last: Look | None = None
        self._says = ""
        self._came_from: list[Wanted] = []

    def compose(self) -> ComposeResult:
        """All panes; one is shown."""
        yield Lines(id="header")
        yield Lines(id="title")
        yield Input(id="filter", compact=True, select_on_focus=False)
        yield RowTable(WORKERS, WORKERS_DROP, narrow=("PROCEDURE",), hugs=True, id="workers")
        yield RowTable(PROCEDURES, PROCEDURES_DROP, narrow=("ID",), id="rows")
        yield RowTable(GROUPS, GROUPS_DROP, narrow=("TYPE", "ERROR"), hugs=True, id="groups")
        yield RowTable(HOSTS, HOSTS_DROP, narrow=("MACHINE",), id="hosts")
        yield RowTable(id="lines")
        yield Lines(id="footer")

    def on_mount(self) -> None:
        """Begin to look."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, self.exit)
            except (ValueError, RuntimeError):  # not on the main thread
                break
        self._arrange()
        self.set_interval(self._every, self._tick)
        self.look()

    def on_unmount(self) -> None:
        """Let go of the store."""
        if not self._is_asking:
            self._source.close()

    # ------------------------------------------------------------ looks
    def _tick(self) -> None:
        if not self._is_held and self.screen is self.screen_stack[0]:
            self.look()

    def look(self) -> None:
        """Look at once, or when the look under way is done."""
        if self._is_asking:
            self._again = True
            return
        self._is_asking, self._again = True, False
        wanted = replace(self._wanted, width=self.size.width)
        self.run_worker(lambda: self._look(wanted), thread=True, group="look", exit_on_error=False)

    def _look(self, wanted: Wanted) -> None:
        try:
            look = self._source.look(wanted)
        except Exception as error:  # noqa: BLE001 - a fault of this program is shown, and the next look is another try
            header = header_of(status="refused") if self._last is None else self._last.header
            look = Look(wanted=wanted, at=time.time(), header=header, trouble=f"{type(error).__name__}: {error}")
        try:
            self.call_from_thread(self._looked, look)
        except RuntimeError:  # the screen was left meanwhile
            self._source.close()

    def _looked(self, look: Look) -> None:
        self._is_asking = False
        if not self.is_running:
            self._source.close()
            return
        if replace(look.wanted, width=self._wanted.width) == self._wanted:
            self._last = look
            self._show(look)
        if self._again:
            self.look()

    def _show(self, look: Look) -> None:
        try:
            self._lines("header").show(header_lines(look.header, look.at, is_paused=self._is_held))
        except NoMatches:
            return
        match look.wanted.pane:
            case "now":
                self._table("workers").show_rows(worker_cells(look.workers))
                self._table("rows").show_rows(procedure_cells(sorted_rows(look.rows, self._sort), look.at))
                self._table("groups").show_rows(group_cells(look.groups, look.at))
            case "hosts":
                self._table("hosts").show_rows(host_cells(look.hosts))
            case "procedures":
                self._table("rows").show_rows(procedure_cells(sorted_rows(look.rows, self._sort), look.at))
            case _:
                width = max(20, self.size.width)
                self._table("lines").show_rows(
                    [Row(id, (part,)) for text, id in look.lines for part in wrapped(text, width)]
                )
        self._label(look)

    def _label(self, look: Look | None) -> None:
        """The line above the rows, and the one below."""
        self._lines("title").show([title_parts(self._wanted, look, self._sort, self._filter_line)])
        keys = "q leave  ? keys  1 now 2 procedures 3 locks 4 activity 5 hosts  / filter a verbs"
        if self._wanted.pane == "procedure":
            keys = "Esc back  ? keys  Tab next  w why e steps t tree y state o logs s stack  a verbs"
        trouble = look.trouble if look is not None else ""
        tone = "calm" if self._says else "bad" if trouble else "dim"
        self._lines("footer").show([((self._says or trouble or keys, tone),)])

    # ------------------------------------------------------------ panes
    # Not `query_one` of the application, which asks the dialog while one is open.
    def _lines(self, name: str) -> Lines:
        return self.screen_stack[0].query_one(f"#{name}", Lines)

    @property
    def _filter(self) -> Input:
        return self.screen_stack[0].query_one("#filter", Input)

    def _table(self, name: str) -> RowTable:
        return self.screen_stack[0].query_one(f"#{name}", RowTable)

    def _arrange(self) -> None:
        """Show the tables of the pane, and put the cursor into the one to begin with."""
        shown = _TABLES.get(self._wanted.pane, ("lines",))
        for name in ("workers", "rows", "groups", "hosts", "lines"):
            self._table(name).display = name in shown
        self._table("rows" if "rows" in shown else shown[0]).focus()
        self._label(None)

    def _want(self, wanted: Wanted) -> None:
        if wanted.pane != self._wanted.pane or wanted.id != self._wanted.id:
            for name in ("rows", "lines"):
                self._table(name).marked.clear()
                self._table(name).select(0)
        self._wanted = wanted
        self._says = ""
        self._arrange()
        self.look()

    def action_go(self, pane: Pane) -> None:
        """Show another pane."""
        self._came_from.clear()
        self._want(Wanted(pane=pane, limit=_PAGE, filters=self._wanted.filters, text=self._wanted.text))

    def action_prefix(self) -> None:
        """The next key names a pane."""
        self._is_prefixed = True

    def take_after_prefix(self, key: str) -> bool:
        """Take the key behind ``g``; whether it was one."""
        was, self._is_prefixed = self._is_prefixed, False
        if was and key in _PREFIXED:
            self.action_go(_PREFIXED[key])
        return was

    def action_next(self, by: int) -> None:
        """The next tab of a procedure, or the next table."""
        if self.screen is not self.screen_stack[0] or isinstance(self.focused, Input):
            return
        if self._wanted.pane == "procedure":
            self.action_detail(DETAILS[(DETAILS.index(self._wanted.detail) + by) % len(DETAILS)])
        elif by > 0:
            self.screen.focus_next(RowTable)
        else:
            self.screen.focus_previous(RowTable)

    async def action_back(self) -> None:
        """Back to what was shown before; without anything, the filter is taken away."""
        if self._came_from:
            self._want(self._came_from.pop())
        elif self._filter_line:
            self._set_filter("")
        else:
            self.action_go("now")

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """Show a procedure."""
        if self._wanted.id != event.key:
            self._came_from.append(self._wanted)
            self._want(Wanted(pane="procedure", id=event.key))

    def on_row_table_at_end(self, _event: RowTable.AtEnd) -> None:
        """Read more rows."""
        if self._last is not None and self._last.is_more and self._wanted.limit < _MOST:
            self._wanted = replace(self._wanted, limit=min(_MOST, self._wanted.limit * 2))
            self.look()

    def action_detail(self, detail: Detail) -> None:
        """Another tab of the procedure that is shown, or that the cursor is on."""
        if self._wanted.pane == "procedure":
            self._want(replace(self._wanted, detail=detail, record=None))
        elif key := self._key():
            self._came_from.append(self._wanted)
            self._want(Wanted(pane="procedure", id=key, detail=detail))

    def action_record(self, by: int) -> None:
        """The state at the record before or behind the one that is shown."""
        look = self._last
        if self._wanted.pane != "procedure" or self._wanted.detail != "state" or look is None or not look.lines:
            return
        match = _RECORD.match(look.lines[0][0])
        shown = self._wanted.record or (int(match[1]) if match else 0)
        if shown + by >= 1:
            self._want(replace(self._wanted, record=shown + by))

    def action_sort(self) -> None:
        """The next order of rows."""
        names = list(SORTS)
        self._sort = names[(names.index(self._sort) + 1) % len(names)]
        if self._last is not None:
            self._show(self._last)

    def action_hold(self) -> None:
        """Refresh no more, or again."""
        self._is_held = not self._is_held
        if self._last is not None:
            self._show(self._last)
        if not self._is_held:
            self.look()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Help())

    async def action_leave(self) -> None:
        """Leave the screen."""
        self.exit()

    # ------------------------------------------------------------ filter
    def action_filter(self) -> None:
        """Let the filter be typed."""
        if self._wanted.pane not in ("now", "procedures"):
            return
        line = self._filter
        line.display = True
        line.value = self._filter_line
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the filter."""
        if event.input.id == "filter":
            self._set_filter(event.value.strip())

    def on_key(self, event: Any) -> None:
        """Leave the filter line as it was."""
        if event.key == "escape" and isinstance(self.focused, Input) and self.focused.id == "filter":
            event.stop()
            event.prevent_default()
            self.focused.display = False
            self._arrange()

    def _set_filter(self, line: str) -> None:
        try:
            filters, text = ({}, line) if self._parse is None else self._parse(line)
        except ValueError as error:
            self._says = str(error)
            self._label(self._last)
            return
        self._filter_line = line
        self._filter.display = False
        self._want(Wanted(pane="procedures", limit=_PAGE, filters=filters, text=text))

    # ------------------------------------------------------------ verbs
    def _key(self) -> str:
        """The procedure under the cursor."""
        return self.focused.key if isinstance(self.focused, RowTable) else ""

    def _chosen(self) -> list[str]:
        """Procedures that a verb is for: the one that is open, the marked ones, or the one under the cursor."""
        if self._wanted.pane == "procedure":
            return [self._wanted.id]
        table = self.focused
        if isinstance(table, RowTable) and table.marked:
            return [key for key in dict.fromkeys(table.keys) if key in table.marked]
        return [key] if (key := self._key()) else []

    def action_act(self) -> None:
        """Offer the verbs."""
        if self._is_read_only:
            self._says = "this screen is read-only"
            self._label(self._last)
            return
        chosen = self._chosen()
        self.push_screen(ActionMenu(chosen), lambda action: self._asked(action, chosen))

    def _asked(self, action: Action | None, chosen: list[str]) -> None:
        if action is not None:
            is_live = self._last is not None and self._last.header.pid is not None
            where = "by the manager" if is_live else "in the stopped store"
            self.push_screen(Question(action, chosen, where), lambda reason: self._confirmed(action, chosen, reason))

    def _confirmed(self, action: Action, chosen: list[str], reason: str | None) -> None:
        if reason is None:
            return
        self._says = f"{action.name} …"
        self._label(self._last)
        self.run_worker(lambda: self._act(action, chosen, reason), thread=True, group="act", exit_on_error=False)

    def _act(self, action: Action, chosen: list[str], reason: str) -> None:
        lines = carry_out(self._source.path, action, chosen, reason or None)
        refused = [line for line in lines if "refused" in line]
        says = (refused or lines or [""])[0]
        if len(lines) > 1:
            says = f"{len(lines) - len(refused)} of {len(lines)} done; {says}"
        self.call_from_thread(self._acted, says)

    def _acted(self, says: str) -> None:
        self._says = says
        self._label(self._last)
        self.look()
