"""Tables in a TOML file, replaced in the text: comments and blank lines between tables stay where they are."""

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item, Key, SingleKey, Table, Whitespace

from riglm.application.setup.json_members import FileNotEditableError

TomlPath = Sequence[str]


def parse(text: str) -> dict[str, Any]:
    """Return the content.

    Raises:
        FileNotEditableError: it is no TOML, which includes keys that occur twice.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileNotEditableError(f"this is not TOML ({error})") from None
    except RecursionError:
        raise FileNotEditableError("the values are nested too deeply") from None


def replace_entries(
    text: str, path: TomlPath, names: Collection[str], entry: tuple[str, Mapping[str, Any]] | None
) -> str:
    """Return the text without these tables below a path, and with another in the place of the first of them."""
    new = [] if entry is None else [(SingleKey(entry[0]), tomlkit.item(dict(entry[1])))]
    return _replaced(text, path, names, new)


def restore_entries(text: str, path: TomlPath, entry: str | None, before: str, names: Collection[str]) -> str:
    """Return the text with tables of an earlier version of it in the place of an entry, or behind all others."""
    tables = [
        (key, item)
        for container in _containers(_parsed(before), path)
        for key, item in container.body
        if key is not None and key.key in names
    ]
    for _, item in tables:
        _pop_trailing(item)
    return _replaced(text, path, [] if entry is None else [entry], tables)


def set_members(text: str, path: TomlPath, members: Mapping[str, Any], removed: Collection[str]) -> str:
    """Return the text with these keys in a table, and without the removed ones."""
    document: Any = _parsed(text)
    table = document
    for key in path:
        table = table[key]
    for key in removed:
        table.pop(key, None)
    table.update(members)
    return _with_newlines_of(text, tomlkit.dumps(document))


def _replaced(text: str, path: TomlPath, names: Collection[str], new: Sequence[tuple[Key, Item]]) -> str:
    document, remaining = _parsed(text), list(new)
    containers = list(_containers(document, path))
    for container in containers:
        body: list[tuple[Key | None, Item]] = []
        for key, item in container.body:
            if key is None or key.key not in names:
                body.append((key, item))
                continue
            trailing = Whitespace(_pop_trailing(item))
            is_inline = isinstance(item, InlineTable) or key.is_dotted()
            body += [_inline(*each) if is_inline else each for each in remaining]
            body.append((None, trailing))
            remaining = []
        container.body[:] = body
    if remaining and containers:
        containers[-1].body.extend(remaining)
    return _with_newlines_of(text, tomlkit.dumps(document))


def _containers(document: Container, path: TomlPath) -> Iterator[Container]:
    """Yield the parts of a table, which may be in several places of the text.

    Raises:
        FileNotEditableError: the table is written in one value, which contains all others as well.
    """
    if not path:
        yield document
        return
    for key, item in document.body:
        if key is not None and key.key == path[0]:
            if not isinstance(item, Table):
                raise FileNotEditableError(f"all of `{'.'.join(path)}` is written in one value")
            yield from _containers(item.value, path[1:])


def _inline(key: Key, item: Item) -> tuple[Key, Item]:
    """Return a table in one line, for a place among the keys of another table."""
    if not isinstance(item, Table) or key.is_dotted():
        return key, item
    inline = tomlkit.inline_table()
    inline.update(item.unwrap())
    return key, inline


def _pop_trailing(item: Item) -> str:
    """Remove the comments and blank lines behind the last value of a table, and return them."""
    text = ""
    while isinstance(item, Table) and item.value.body:
        key, last = item.value.body[-1]
        if key is not None:
            return _pop_trailing(last) + text
        text = last.as_string() + text
        item.value.body.pop()
    return text


def _parsed(text: str) -> Container:
    parse(text)
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, RecursionError) as error:
        raise FileNotEditableError(f"this is not TOML ({error})") from None


def _with_newlines_of(text: str, new: str) -> str:
    is_windows = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    return new.replace("\r\n", "\n").replace("\n", "\r\n") if is_windows else new
