"""Stored values for people: bytes to a tree of names, types and texts, without the classes that wrote them.

Nothing is imported, unpickled or looked up by a name that the bytes hold. Secrets become asterisks before anything else
is done with them. The tree is bounded in depth, in items a level and in text, whatever the bytes are.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from actorproc.procedure.values.kinds.base import (
    ADAPTED,
    COUNTER,
    DEFAULTDICT,
    DEQUE,
    DICT,
    ENUM,
    FROZENSET,
    IP_ADDRESS,
    MODEL,
    NDARRAY,
    NUMPY_SCALAR,
    OBJECT,
    ORDERED,
    PICKLED,
    RANGE,
    SECRETS,
    SET,
    TUPLE,
    UNPACK,
    UNSET,
    URL,
    WITHHELD,
    pairs_of,
)
from actorproc.procedure.values.secrets.secret import HIDDEN

__all__ = [
    "MOST_ITEMS",
    "MOST_TEXT",
    "ShownValue",
    "differences",
    "lines_of",
    "viewed",
    "viewed_pickle",
    "viewed_state",
]

MOST_DEPTH = 20
MOST_ITEMS = 200
"""Items of one container that are shown."""
MOST_TEXT = 64 * 1024
"""Characters of all texts of one value."""
_ITEM_COST = 16
_INLINE = 72
_PAIR = b"\x92"
"""An array of two: a position, and the fields."""
_MOST_BYTES = 64
_OPCODES = 20_000
_ODD_BYTES = 24
_ARRAY = re.compile(r"[<>|=]?([biufcSUMmV?])(\d*)(\[\w+\])?")
_KINDS = {"b": "bool", "?": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_LIST_LIKE = {TUPLE: "tuple", SET: "set", FROZENSET: "frozenset"}
_PAIR_LIKE = {DICT: "dict", ORDERED: "OrderedDict", COUNTER: "Counter"}


class ShownValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value as a tree that is read without its classes: a leaf has a text, a container has items."""

    type: str
    """Name of a builtin type, "module:Class" of an object, "secret", "pickle" or "unreadable"."""
    text: str = ""
    """A leaf in one form that reads as Python; "" of a container."""
    items: tuple[tuple[str, ShownValue], ...] = ()
    """Names and values: fields, keys, or the places in a list."""
    omitted: int = 0
    """Items that are left out, because there are more than are shown."""
    value: Any = None
    """The leaf as JSON holds it; None for one that JSON does not know."""

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain data that JSON can hold."""
        shown: dict[str, Any] = {"type": self.type, "text": self.text, "value": self.value}
        shown["items"] = [{"name": name, **item.to_dict()} for name, item in self.items]
        shown["omitted"] = self.omitted
        return shown

    def plain(self) -> Any:
        """The value as JSON writes it; a type that JSON does not know stands under "$type"."""
        if self.type == "dict":
            found = {name: item.plain() for name, item in self.items}
            return {**found, "$omitted": self.omitted} if self.omitted else found
        if self.type == "list":
            found_items = [item.plain() for _, item in self.items]
            return [*found_items, {"$omitted": self.omitted}] if self.omitted else found_items
        if self.type in _LIST_LIKE.values() or self.type == "deque":
            return {"$type": self.type, "items": [item.plain() for _, item in self.items]}
        if self.items or not self.text:
            return {"$type": self.type, **{name: item.plain() for name, item in self.items}}
        if self.value is not None or self.type == "None":
            return self.value
        return {"$type": self.type, "text": self.text}

    def mapped(self, path: str, change: Callable[[str, Any], Any]) -> ShownValue:
        """The tree with another value in the place of each leaf; paths are those of `plain`.

        Args:
            path: Path of this value.
            change: Gives the value of a leaf, called with its path and its present value.
        """
        if self.items:
            inside = f"{path}.items" if self.type in _LIST_LIKE.values() or self.type == "deque" else path
            form = "{}.{}" if inside == path and self.type != "list" else "{}[{}]"
            items = [(name, item.mapped(form.format(inside, name), change)) for name, item in self.items]
            return msgspec.structs.replace(self, items=tuple(items))
        if self.value is not None or self.type == "None":
            new = change(path, self.value)
            is_same = type(new) is type(self.value) and new == self.value
            return self if is_same else msgspec.structs.replace(self, value=new, text=repr(new))
        return msgspec.structs.replace(self, text=str(change(f"{path}.text", self.text))) if self.text else self

    def inline(self, limit: int = 400) -> str:
        """The value in one line of at most `limit` characters."""
        text = "".join(_inline(self, limit))
        return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


class _Raw(NamedTuple):
    """An extension that is looked into only when it is shown."""

    code: int
    payload: bytes


def viewed(data: bytes, codec: str = "data") -> ShownValue:
    """The tree of stored bytes: of a state, an output, a note or a payload. Never raises for what bytes may hold.

    Args:
        data: the bytes.
        codec: of a state, "data" or "pickle"; another one is shown by its size.
    """
    if not data:
        return ShownValue(type="nothing", text="nothing is stored")
    walk = _Walk()
    try:
        if codec == "pickle":
            found = _decode(data)
            return viewed_pickle(found if isinstance(found, bytes) else data)
        if codec != "data":
            return ShownValue(type="unreadable", text=f"{len(data)} B, written by the codec {codec!r}")
        return walk.shown(_decode(data), MOST_DEPTH)
    except (ValueError, RecursionError, TypeError, ArithmeticError):
        return _foreign(data)


def viewed_state(data: bytes, codec: str = "data") -> tuple[str, ShownValue]:
    """The position of a saga or machine ("": it has none), and the tree of the fields."""
    if data[:1] != _PAIR:
        return "", viewed(data, codec)
    try:
        position, fields = _decode(data)
        walk = _Walk()
        if codec == "pickle":
            shown = viewed_pickle(fields if isinstance(fields, bytes) else data)
        else:
            shown = walk.shown(fields, MOST_DEPTH)
        place = _place(position)
        return walk.shown(position, 4).inline(80) if place is None else place, shown
    except (ValueError, RecursionError, TypeError, ArithmeticError):
        return "", viewed(data, codec)


def _place(position: Any) -> str | None:
    """Name of a step or state; "" behind the last one; None: it is of another form."""
    while isinstance(position, list) and position:
        position = position[0]
    return position if isinstance(position, str) else None


def viewed_pickle(data: bytes) -> ShownValue:
    """A pickle by its size and the classes it names. It is read as opcodes and never loaded."""
    start = next((at for at in range(min(len(data), 256)) if data[at : at + 1] == b"\x80" and data[at + 1] <= 5), None)
    named = [] if start is None else list(dict.fromkeys(_names_in(data[start:])))
    classes = f"; names {', '.join(named[:8])}{', …' if len(named) > 8 else ''}" if named else ""
    return ShownValue(type="pickle", text=f"pickle, {len(data)} B{classes}; it is not loaded")


def _names_in(pickle: bytes) -> Iterator[str]:
    """Names of classes and functions that a pickle refers to, as far as its opcodes can be read."""
    import pickletools  # noqa: PLC0415 - it loads pickle, which commands that only look do without

    texts: list[str] = []
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
            if number > _OPCODES:
                return
            if opcode.name == "GLOBAL" and isinstance(argument, str):
                yield argument.replace(" ", ".")
            elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
                yield f"{texts[-2]}.{texts[-1]}"
            elif isinstance(argument, str):
                texts = [*texts[-1:], argument[:200]]
    except Exception:  # noqa: BLE001 - a damaged pickle is still told by its size
        return


def _decode(data: bytes) -> Any:
    return msgspec.msgpack.Decoder(ext_hook=lambda code, payload: _Raw(code, bytes(payload))).decode(data)


def _foreign(data: bytes) -> ShownValue:
    """Bytes that are no value of ours: text, or their beginning in hexadecimal."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ShownValue(type="unreadable", text=f"{len(data)} B: {data[:_ODD_BYTES].hex(' ')}…")
    return ShownValue(type="unreadable", text=f"{len(data)} B of text: {text[:200]!r}")


class _Walk:
    """One walk; it counts the text that may still be shown."""

    def __init__(self) -> None:
        self.room = MOST_TEXT

    def shown(self, value: Any, depth: int) -> ShownValue:
        """The tree of a decoded value."""
        self.room -= _ITEM_COST
        if depth <= 0 or self.room <= 0:
            return ShownValue(type=_type_of(value), text="…")
        if isinstance(value, _Raw):
            return self._extension(value, depth)
        if isinstance(value, dict):
            return self._pairs("dict", len(value), iter(value.items()), depth)
        if isinstance(value, list):
            return self._list("list", value, depth)
        return self._leaf(type(value).__name__.replace("NoneType", "None"), value)

    def _leaf(self, type_name: str, value: Any, *, is_json: bool = True) -> ShownValue:
        if isinstance(value, bytes | bytearray):
            cut = bytes(value[: self._room(len(value), _MOST_BYTES)])
            text = repr(cut) + (f"… ({len(value)} B)" if len(cut) < len(value) else "")
            return ShownValue(type=type_name, text=text, value=base64.b64encode(cut).decode())
        if isinstance(value, str) and type_name == "str":
            limit = self._room(len(value), 8192)
            cut_text = value[:limit]
            text = repr(cut_text) + (f"… ({len(value)} characters)" if limit < len(value) else "")
            shown_text = cut_text + ("…" if limit < len(value) else "")
            return ShownValue(type="str", text=text, value=shown_text.encode("utf-8", "backslashreplace").decode())
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4000:
            return ShownValue(type=type_name, text=f"a whole number of {value.bit_length()} bits")
        text = str(value) if type_name not in {"float", "int", "bool", "None"} else repr(value)
        text = text[: self._room(len(text), 8192)]
        known = value if is_json and not (isinstance(value, float) and not math.isfinite(value)) else None
        return ShownValue(type=type_name, text=text, value=known)

    def _room(self, size: int, most: int) -> int:
        found = max(0, min(size, most, self.room))
        self.room -= found
        return found

    def _list(self, type_name: str, values: list[Any], depth: int) -> ShownValue:
        items = []
        for place, value in enumerate(values[:MOST_ITEMS]):
            if self.room <= 0:
                break
            items.append((str(place), self.shown(value, depth - 1)))
        return ShownValue(type=type_name, items=tuple(items), omitted=len(values) - len(items))

    def _pairs(self, type_name: str, size: int, pairs: Iterator[tuple[Any, Any]], depth: int) -> ShownValue:
        items: list[tuple[str, ShownValue]] = []
        for key, value in pairs:
            if self.room <= 0 or len(items) >= MOST_ITEMS:
                break
            items.append((self._key(key, depth), self.shown(value, depth - 1)))
        return ShownValue(type=type_name, items=tuple(items), omitted=size - len(items))

    def _key(self, key: Any, depth: int) -> str:
        if isinstance(key, str):
            return key[: self._room(len(key), 512)].encode("utf-8", "backslashreplace").decode()
        return self.shown(key, min(depth, 3) - 1).inline(200)

    def _fields(self, type_name: str, fields: dict[str, Any], depth: int) -> ShownValue:
        return self._pairs(type_name, len(fields), iter(fields.items()), depth)

    def _extension(self, raw: _Raw, depth: int) -> ShownValue:
        if raw.code in SECRETS or raw.code == WITHHELD:
            return ShownValue(type="secret", text=HIDDEN)
        if raw.code == PICKLED:
            return viewed_pickle(raw.payload)
        try:
            return self._read(raw.code, raw.payload, depth)
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 - damaged or of a newer version: it is told, and the rest is shown
            return ShownValue(type="unreadable", text=f"{len(raw.payload)} B of an unknown kind ({raw.code})")

    def _read(self, code: int, payload: bytes, depth: int) -> ShownValue:
        if code in _LIST_LIKE:
            return self._list(_LIST_LIKE[code], _decode(payload), depth)
        if code in _PAIR_LIKE:
            flat = _decode(payload)
            return self._pairs(_PAIR_LIKE[code], len(flat) // 2, iter(pairs_of(flat)), depth)
        if code == DEFAULTDICT:
            _, flat = _decode(payload)
            return self._pairs("defaultdict", len(flat) // 2, iter(pairs_of(flat)), depth)
        if code == DEQUE:
            return self._list("deque", _decode(payload)[1], depth)
        if code == OBJECT:
            name, fields, *_ = _decode(payload)
            return self._fields(str(name), fields, depth)
        if code == MODEL:
            name, fields, extra, *_ = _decode(payload)
            return self._fields(str(name), {**fields, **(extra if isinstance(extra, dict) else {})}, depth)
        if code == ENUM:
            name, _by_name, stored, *_ = _decode(payload)
            inner = stored if not isinstance(stored, _Raw) else self.shown(stored, depth - 1).text
            return ShownValue(type=str(name), text=f"{str(name).rpartition(':')[2]}.{inner}", value=str(inner))
        if code == ADAPTED:
            name, _version, data = _decode(payload)
            return self._fields(str(name), {"kept as": data}, depth)
        return self._library(code, payload)

    def _library(self, code: int, payload: bytes) -> ShownValue:
        """A leaf of the standard library, numpy or pydantic."""
        if code == NDARRAY:
            described, shape, _flags, data = _decode(payload)
            size = len(data) if isinstance(data, bytes) else 0
            return ShownValue(type="numpy.ndarray", text=f"array of {_element(described)}, {_shape(shape)}, {size} B")
        if code == NUMPY_SCALAR:
            described, data = _decode(payload)
            if isinstance(described, list):
                described = described[0]
            return self._leaf(f"numpy.{_element(described)}", _number(described, data), is_json=True)
        if code in (URL, IP_ADDRESS):
            name, text = _decode(payload)
            return self._leaf(str(name), text)
        if code == RANGE:
            start, stop, step = (_plain_int(part) for part in _decode(payload))
            return ShownValue(type="range", text=f"range({start}, {stop}, {step})")
        if code not in UNPACK:
            msg = f"code {code}"
            raise ValueError(msg)
        try:
            found = UNPACK[code](memoryview(payload), msgspec.msgpack.Decoder(ext_hook=_scalar_in).decode)
        except LookupError as error:  # a time zone that this machine does not know: zoneinfo raises a KeyError
            return ShownValue(type="unreadable", text=f"{type(error).__name__}: {error}")
        if found is UNSET:
            return ShownValue(type="unset", text="not set")
        if isinstance(found, bool | int | str | bytes | bytearray):
            return self._leaf(type(found).__name__, found)
        name = type(found).__name__
        return self._leaf(name if not name.endswith(("Path",)) else "Path", found, is_json=False)


def _scalar_in(code: int, payload: memoryview) -> Any:
    """Numbers and texts within an extension of the standard library."""
    return UNPACK[code](payload, msgspec.msgpack.decode)


def _plain_int(value: Any) -> Any:
    return _scalar_in(value.code, memoryview(value.payload)) if isinstance(value, _Raw) else value


def _type_of(value: Any) -> str:
    return "…" if isinstance(value, _Raw) else type(value).__name__


def _element(described: Any) -> str:
    """The type of an array's elements in numpy's words."""
    if isinstance(described, list) and described:
        described = described[0]
    if isinstance(described, dict):
        names = described.get("names")
        return f"records of {', '.join(map(str, names))}" if isinstance(names, list) else "arrays"
    match = _ARRAY.fullmatch(str(described))
    if match is None:
        return str(described)[:40]
    kind, size, unit = match.groups()
    if kind in _KINDS:
        return _KINDS[kind] + (str(int(size) * 8) if size and kind not in "b?" else "")
    words: dict[str, str] = {"S": "bytes", "U": "text", "M": "datetime64", "m": "timedelta64", "V": "raw bytes"}
    return words[kind] + (unit or "")


def _shape(shape: Any) -> str:
    return " × ".join(map(str, shape)) if isinstance(shape, list) and shape else "one element"


def _number(described: Any, data: Any) -> Any:
    """A numpy scalar without numpy; its bytes where Python has no such number."""
    if described in ("U", "S"):
        return data
    match = _ARRAY.fullmatch(str(described))
    if match is None or not isinstance(data, bytes) or match[1] not in "biuf?":
        return data
    import struct  # noqa: PLC0415 - for a rare kind

    order = ">" if str(described).startswith(">") else "<"
    if match[1] in "b?":
        return data != b"\0"
    if match[1] == "f":
        return struct.unpack(order + {2: "e", 4: "f", 8: "d"}[len(data)], data)[0] if len(data) in (2, 4, 8) else data
    return int.from_bytes(data, "big" if order == ">" else "little", signed=match[1] == "i")


# ---------------------------------------------------------------- text
_BRACKETS = {
    "list": ("[", "]"),
    "tuple": ("(", ")"),
    "set": ("{", "}"),
    "frozenset": ("{", "}"),
    "deque": ("[", "]"),
}


def _inline(shown: ShownValue, limit: int) -> Iterator[str]:
    if not shown.items and (shown.text or shown.type not in (*_BRACKETS, "dict")):
        if shown.text:
            yield shown.text
        else:
            yield f"{_short(shown.type)}()"
        return
    is_list = shown.type in _BRACKETS
    is_object = not is_list and shown.type != "dict"
    first, last = _BRACKETS.get(shown.type, ("{", "}"))
    if is_object:
        first, last = f"{_short(shown.type)}(", ")"
    yield first
    spent = 0
    for place, (name, item) in enumerate(shown.items):
        if spent > limit:
            break
        text = ("" if is_list else f"{name}=" if is_object else f"{name}: ") + item.inline(limit)
        spent += len(text)
        yield (", " if place else "") + text
    if shown.omitted:
        yield f", … {shown.omitted} more" if shown.items else f"… {shown.omitted} more"
    elif shown.type == "tuple" and len(shown.items) == 1:
        yield ","
    yield last


def _short(type_name: str) -> str:
    return type_name.rpartition(":")[2].rpartition(".")[2] or type_name


def lines_of(shown: ShownValue, name: str = "", indent: int = 0, most: int = MOST_ITEMS) -> Iterator[str]:
    """The tree in lines: what fits stands in one line, the rest below its name. Control characters are not escaped.

    `most`: items of one container.
    """
    space = "  " * indent
    head = f"{space}{name}: " if name else space
    short = shown.inline(_INLINE + 1)
    if not shown.items or (len(short) <= _INLINE and len(short) + len(head) <= _INLINE + 8):
        kind = "" if shown.type in ("str", "int", "float", "bool", "None", "secret", "pickle") else f"  ({shown.type})"
        kind = "" if shown.items or not shown.text or ":" in shown.type else kind
        yield head + shown.inline(2000) + kind
        return
    count = len(shown.items) + shown.omitted
    yield f"{head}{shown.type}, {count} item{'' if count == 1 else 's'}"
    for item_name, item in shown.items[:most]:
        yield from lines_of(item, f"[{item_name}]" if shown.type in _BRACKETS else item_name, indent + 1, most)
    if count > len(shown.items[:most]):
        yield f"{space}  … {count - len(shown.items[:most])} more"


def differences(before: ShownValue, after: ShownValue, path: str = "") -> Iterator[tuple[str, str | None, str | None]]:
    """Places where two trees differ, with both texts; None: it is not there. Items of lists are compared by place."""
    if before == after:
        return
    if before.type != after.type or not (before.items or after.items):
        yield path or "value", before.inline(), after.inline()
        return
    old, new = dict(before.items), dict(after.items)
    for name in dict.fromkeys((*old, *new)):
        place = f"{path}[{name}]" if after.type in _BRACKETS else f"{path}.{name}" if path else name
        if name not in old:
            yield place, None, new[name].inline()
        elif name not in new:
            yield place, old[name].inline(), None
        else:
            yield from differences(old[name], new[name], place)
    if before.omitted != after.omitted:
        yield f"{path or 'value'}, items not shown", str(before.omitted), str(after.omitted)
