"""Takes files of thoughts, and of the MCP memory server, into the knowledge store."""

import codecs
import json
import math
import stat
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from riglm.domain import knowledge
from riglm.domain.errors import UnusableInputError
from riglm.domain.session import uuid7
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailableError
from riglm.ports.knowledge import KnowledgePort

JsonRow: TypeAlias = Mapping[str, Any]
"""One JSON object of a file."""

_KINDS: Final[Mapping[type, tuple[str, str]]] = {
    type(None): ("null", "and is missing"),
    bool: ("true or false", "not true or false"),
    int: ("a number", "not this number"),
    float: ("a number", "not this number"),
    str: ("a text", "not this text"),
    list: ("a list", "not this list"),
    dict: ("an object", "not an object"),
}
"""What a message calls values, which may be private: as a line, and as the value of a key."""


class InvalidLineError(ValueError):
    """Raised when a line is invalid. The message contains the reason and the fix, not the location."""


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, by number, the first being 1.

    Raises:
        UnusableInputError: it is no file, or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UnusableInputError(f"{path}: this is no file — fix: put a file of JSON lines there")
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    except OSError as error:
        raise UnusableInputError(f"{path}: {error.strerror} — fix: put a file there that you may read") from error


def object_of(line: bytes) -> JsonRow:
    """The JSON object that a line is.

    Raises:
        InvalidLineError: it is none.
    """
    try:
        value = json.loads(line.decode().rstrip())
    except UnicodeDecodeError as error:
        raise InvalidLineError(f"byte {error.start + 1} is not UTF-8 — fix: save the file in UTF-8") from error
    except json.JSONDecodeError as error:
        reason = f"this is not JSON (column {error.colno}: {error.msg})"
    except RecursionError:
        reason = "the values are nested too deeply"
    except ValueError:
        reason = "a number has too many digits"
    else:
        if isinstance(value, dict):
            return value
        reason = f"this is not a JSON object but {_KINDS[type(value)][0]}"
    raise InvalidLineError(f"{reason} — fix: one JSON object on each line")


def visible_text(key: str, value: Any) -> str:
    """A text in which something can be seen.

    Raises:
        InvalidLineError: it is something else.
    """
    if isinstance(value, str) and knowledge.is_visible(value):
        return value
    raise wrong(key, "a text that can be seen", value, f'write "{key}": "..."')


def texts(key: str, value: Any) -> tuple[str, ...]:
    """A list of texts, each once; none when there is no list.

    Raises:
        InvalidLineError: it is something else.
    """
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(dict.fromkeys(value))
    raise wrong(key, "a list of texts", value, f'write "{key}": ["...", ...] or remove it')


def wrong(key: str, expected: str, value: Any, fix: str) -> InvalidLineError:
    """The error for a value that is not what it must be."""
    return InvalidLineError(f"{key!r} must be {expected}, {_KINDS[type(value)][1]} — fix: {fix}")


ENTITY: Final = "entity"
RELATION: Final = "relation"
_KEYS: Final = {
    ENTITY: frozenset({"type", "name", "entityType", "observations"}),
    RELATION: frozenset({"type", "from", "to", "relationType"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An entity as a line describes it; its relations are on other lines. The kind may be empty."""

    name: str
    kind: str
    observations: tuple[str, ...]


def memory_of(row: JsonRow, owner: str) -> Described | knowledge.Relation:
    """Return the record that a line describes. Observations without visible characters are skipped.

    Raises:
        InvalidLineError: it is neither an entity nor a relation, or a value is none of its key.
    """
    kind = row.get("type")
    if kind == ENTITY:
        return _entity(row)
    if kind == RELATION:
        source, target, relation = (visible_text(key, row.get(key)) for key in ("from", "to", "relationType"))
        return knowledge.Relation(owner=owner, source=source, target=target, kind=relation)
    fix = "remove the line, or give --format thoughts if these are thoughts"
    raise wrong("type", f"{ENTITY} or {RELATION}", kind, fix)


def _entity(row: JsonRow) -> Described:
    kind = row.get("entityType") or ""
    if not isinstance(kind, str):
        raise wrong("entityType", "a text", kind, 'write "entityType": "..." or remove it')
    observations = texts("observations", row.get("observations"))
    return Described(
        name=visible_text("name", row.get("name")),
        kind=kind.strip(),
        observations=tuple(text for text in observations if knowledge.is_visible(text)),
    )


KEYS: Final = frozenset({"text", "origin", "tags", "private", "is_private", "created_at"})
"""The keys that count; `text` must be there."""

_MILLISECONDS_FROM: Final = 1e11
"""An epoch from here on is in milliseconds: in seconds it would be after the year 5000."""

_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def thought_of(row: JsonRow, owner: str, now: float) -> knowledge.Thought:
    """The thought of a line, an owner's; one that does not say when it was made was made `now`.

    Any key with the letters of `private` or `is private`, and no others, counts as that, so that no spelling makes a
    private record public.

    Raises:
        InvalidLineError: the line has no text, or a value that is none of its key.
    """
    return knowledge.Thought(
        id=uuid7(),
        owner=owner,
        text=visible_text("text", row.get("text")),
        origin=_origin(row.get("origin")),
        created_at=_time(row.get("created_at"), now),
        tags=texts("tags", row.get("tags")),
        is_private=any(_flag(key, row[key]) for key in row if _means_private(key)),
    )


def _origin(value: Any) -> knowledge.Origin:
    if value is None:
        return knowledge.Origin.HUMAN
    if isinstance(value, str) and value in list(knowledge.Origin):
        return knowledge.Origin(value)
    raise wrong("origin", f"one of {', '.join(knowledge.Origin)}", value, "write one of these, or remove it")


def _means_private(key: str) -> bool:
    letters = unicodedata.normalize("NFKD", key).casefold()
    return "".join(filter(str.isalnum, letters)) in {"private", "isprivate"}


def _flag(key: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise wrong(key, "true or false", value, "write true or false, or remove it")


def _time(value: Any, now: float) -> float:
    if value is None:
        return now
    seconds = _of_rfc_3339(value) if isinstance(value, str) else _of_epoch(value)
    if seconds is None or not _EARLIEST <= seconds <= _LATEST:
        fix = 'write "2026-01-31T12:00:00Z" or seconds since 1970, or remove it'
        raise wrong("created_at", "a time in RFC 3339 or a number", value, fix)
    return seconds


def _of_rfc_3339(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip().upper())
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _of_epoch(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return None if math.isnan(seconds) else seconds / 1000 if abs(seconds) >= _MILLISECONDS_FROM else seconds


MAX_PROBLEMS: Final = 100
"""Maximum number of skipped lines, and of unknown keys, that are reported one by one."""

_LINE_BATCH_SIZE: Final = 500
_MAX_BATCH_BYTES: Final = 4 << 20

_Piece = knowledge.Thought | Described | knowledge.Relation


class LineFormat(StrEnum):
    """What the lines of a file are."""

    THOUGHTS = "thoughts"
    MEMORY = "memory"


class Source(NamedTuple):
    """A file to import."""

    path: Path
    format: LineFormat


class ImportProblem(NamedTuple):
    """A line that was left out, and why, with the fix."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def _no_counts() -> Counter[str]:
    return Counter(thoughts=0, entities=0, observations=0, relations=0)


@dataclass(slots=True, kw_only=True)
class ImportResult:
    """What became of files: what was read, how much of it was new or made others of what was known, and the rest."""

    read: Counter[str] = field(default_factory=_no_counts)
    new: Counter[str] = field(default_factory=_no_counts)
    changed: Counter[str] = field(default_factory=_no_counts)
    left_out: int = 0
    problems: list[ImportProblem] = field(default_factory=list)
    unknown_keys: dict[str, str] = field(default_factory=dict)
    """Unknown keys, each with its first location."""


def format_of(path: Path, asked: LineFormat | None = None) -> LineFormat | None:
    """Return the format of a file: `asked`, or the format of its first line that has one; None if it is empty.

    Raises:
        UnusableInputError: the file cannot be read, or the format cannot be recognized.
    """
    is_empty = True
    for _, line in numbered_lines(path):
        is_empty = False
        if asked is not None:
            return asked
        try:
            row = object_of(line)
        except InvalidLineError:
            continue
        if row.get("type") in (ENTITY, RELATION):
            return LineFormat.MEMORY
        if isinstance(row.get("text"), str):
            return LineFormat.THOUGHTS
    if is_empty:
        return None
    raise UnusableInputError(
        f'{path}: no line is a thought, {{"text": "..."}}, or of the MCP memory server, {{"type": "entity", ...}} — '
        "fix: write one of these on each line"
    )


def check(sources: Sequence[Source]) -> None:
    """Read files to their ends, and store nothing.

    Raises:
        UnusableInputError: a file cannot be read, or a line is not what it must be.
    """
    for source in sources:
        for line in _lines(source, "", 0.0):
            if isinstance(line.found, ImportProblem):
                raise UnusableInputError(f"{line.found}; nothing was stored")


class KnowledgeImporter:
    """Puts what files hold into a store as an owner's, a few hundred lines at a time. What is known already stays."""

    def __init__(self, store: KnowledgePort, owner: str, now: float) -> None:
        """`owner` is a principal's keyed hash, empty for the local user; items without a time get `now`."""
        self._store = store
        self._owner = owner
        self._now = now
        self._done = ImportResult()

    def run(self, sources: Sequence[Source], advance: Callable[[int], None]) -> ImportResult:
        """Import files and report the bytes read to `advance`; invalid lines are skipped.

        Raises:
            UnusableInputError: a file cannot be read.
            AnalyticsUnavailableError: the store cannot be written; what was stored until then stays, and can come
            again.
        """
        for source in sources:
            lines = _lines(source, self._owner, self._now)
            for some in _batches(lines):
                self._note(source, some)
                self._put([line.found for line in some])
                advance(sum(line.size for line in some))
        return self._done

    def _note(self, source: Source, lines: Sequence["_Line"]) -> None:
        done = self._done
        for line in lines:
            if isinstance(line.found, ImportProblem):
                done.left_out += 1
                if len(done.problems) < MAX_PROBLEMS:
                    done.problems.append(line.found)
            for key in line.unknown_keys:
                if len(done.unknown_keys) < MAX_PROBLEMS:
                    done.unknown_keys.setdefault(key, f"{source.path}:{line.number}")

    def _put(self, found: Sequence["_Piece | ImportProblem"]) -> None:
        thoughts = [each for each in found if isinstance(each, knowledge.Thought)]
        relations = [each for each in found if isinstance(each, knowledge.Relation)]
        described = _joined([each for each in found if isinstance(each, Described)])
        observations = [
            knowledge.Observation(id=uuid7(), owner=self._owner, entity=each.name, text=text, created_at=self._now)
            for each in described.values()
            for text in each.observations
        ]
        read, new, changed = self._done.read, self._done.new, self._done.changed
        read.update(thoughts=len(thoughts), relations=len(relations))
        read.update(entities=len(described), observations=len(observations))
        if thoughts:
            added = self._store.add_thoughts(thoughts)
            new["thoughts"] += added.new
            changed["thoughts"] += added.changed
        if relations:
            new["relations"] += self._store.add_relations(relations)
        if described:
            added = self._store.add_entities(self._entities(described))
            new["entities"] += added.new
            changed["entities"] += added.changed
        if described or relations:
            ends = (end for each in relations for end in (each.source, each.target))
            names = [*dict.fromkeys((*ends, *(each.name for each in described.values())))]
            changed["entities"] += self._store.refresh_entity_texts(self._owner, names)
        if observations:
            new["observations"] += self._store.add_observations(observations).new

    def _entities(self, described: dict[str, Described]) -> list[knowledge.Entity]:
        """The entities of these lines, in words.

        A known entity keeps the spelling of its name, and its kind if these lines give none. Other imports may run at
        the same time, and relations may precede or follow their entities, in the same file or in another. At the end
        the store refreshes the texts of all entities in these lines.
        """
        names = [each.name for each in described.values()]
        known = {knowledge.normalised(each.name): each for each in self._store.entities_named(self._owner, names)}
        related: dict[str, list[knowledge.Relation]] = defaultdict(list)
        for relation in self._store.relations_of(self._owner, names):
            for end in {knowledge.normalised(relation.source), knowledge.normalised(relation.target)}:
                related[end].append(relation)
        entities = []
        for key, each in described.items():
            entity = known.get(key) or knowledge.Entity(
                id=uuid7(), owner=self._owner, name=each.name, kind=each.kind, text="", created_at=self._now
            )
            kind = each.kind or entity.kind
            entities.append(replace(entity, kind=kind, text=knowledge.entity_text(entity.name, kind, related[key])))
        return entities


class _Line(NamedTuple):
    number: int
    size: int
    found: _Piece | ImportProblem
    unknown_keys: tuple[str, ...] = ()


def _lines(source: Source, owner: str, now: float) -> Iterator[_Line]:
    for number, line in numbered_lines(source.path):
        try:
            yield _Line(number, len(line), *_read(object_of(line), source.format, owner, now))
        except InvalidLineError as error:
            yield _Line(number, len(line), ImportProblem(source.path, number, str(error)))


def _read(row: JsonRow, format_: LineFormat, owner: str, now: float) -> tuple[_Piece, tuple[str, ...]]:
    if format_ is LineFormat.THOUGHTS:
        thought = thought_of(row, owner, now)
        return thought, tuple(key for key in row if key not in KEYS and not _means_private(key))
    return memory_of(row, owner), tuple(key for key in row if key not in _KEYS[row["type"]])


def _batches(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """Lines by the hundreds, fewer where they are long."""
    batch: list[_Line] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += line.size
        if len(batch) == _LINE_BATCH_SIZE or size >= _MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _joined(described: Sequence[Described]) -> dict[str, Described]:
    """By name as it is compared; of an entity that is described twice the last kind counts, and all observations.

    A line without a kind does not remove the kind.
    """
    joined: dict[str, Described] = {}
    for each in described:
        earlier = joined.get(knowledge.normalised(each.name))
        observations = (*earlier.observations, *each.observations) if earlier else each.observations
        kind = each.kind or (earlier.kind if earlier else "")
        joined[knowledge.normalised(each.name)] = replace(each, kind=kind, observations=observations)
    return joined


_PIECE_BATCH_SIZE: Final = 512
_BATCHES_KEPT: Final = 8  # a store that is written to for every few texts takes longer than the model

_Item = TypeVar("_Item")


def give_vectors(store: KnowledgePort, embedder: EmbedderPort, batch: int) -> Iterator[int]:
    """Embed the records of all owners without a vector of this model, `batch` at a time; yield how many were stored.

    What was given stays when it ends early, and the next time goes on from there.

    Raises:
        EmbedderUnavailableError: the model does not answer, or not any more, or became another.
        AnalyticsUnavailableError: the store cannot be read or written.
    """
    embedder.embed(())  # raises if it cannot embed
    model = embedder.model
    for table in knowledge.Table:
        earlier: set[UUID] = set()
        while pieces := store.without_vector(table, model, _PIECE_BATCH_SIZE):
            ids = {piece.id for piece in pieces}
            if ids <= earlier:  # another process with a different model removes the vectors again
                break
            earlier = ids
            for some in _parts(pieces, batch * _BATCHES_KEPT):
                texts = [knowledge.searched_text(piece) for piece in some]
                rows = [row for part in _parts(texts, batch) for row in embedder.embed(part)]
                if embedder.model != model:
                    raise EmbedderUnavailableError("another model was loaded meanwhile")
                vectors = [knowledge.Embedding(model=model, vector=row) for row in rows]
                store.set_vectors(table, [(piece.id, vector) for piece, vector in zip(some, vectors, strict=True)])
                yield len(some)


def _parts(whole: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (whole[start : start + size] for start in range(0, len(whole), size))
