"""Takes files of thoughts, and of the MCP memory server, into the knowledge store."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from riglm.application.knowledge import lines
from riglm.application.knowledge.lines import InvalidLineError, JsonRow, numbered_lines, object_of
from riglm.domain.errors import UnusableInputError
from riglm.domain.knowledge import (
    Embedding,
    Entity,
    Observation,
    Relation,
    Table,
    Thought,
    entity_text,
    normalised,
    searched_text,
)
from riglm.domain.session import uuid7
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailableError
from riglm.ports.knowledge import KnowledgePort

MAX_PROBLEMS: Final = 100
"""Maximum number of skipped lines, and of unknown keys, that are reported one by one."""

_LINE_BATCH_SIZE: Final = 500
_MAX_BATCH_BYTES: Final = 4 << 20

_Piece = Thought | lines.Described | Relation


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


@dataclass(slots=True, kw_only=True)
class ImportedCounts:
    """How much of each kind."""

    thoughts: int = 0
    entities: int = 0
    observations: int = 0
    relations: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.thoughts + self.entities + self.observations + self.relations


@dataclass(slots=True, kw_only=True)
class ImportResult:
    """What became of files: what was read, how much of it was new or made others of what was known, and the rest."""

    read: ImportedCounts = field(default_factory=ImportedCounts)
    new: ImportedCounts = field(default_factory=ImportedCounts)
    changed: ImportedCounts = field(default_factory=ImportedCounts)
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
        if row.get("type") in (lines.ENTITY, lines.RELATION):
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
        thoughts = [each for each in found if isinstance(each, Thought)]
        relations = [each for each in found if isinstance(each, Relation)]
        described = _joined([each for each in found if isinstance(each, lines.Described)])
        observations = [self._observation(each.name, text) for each in described.values() for text in each.observations]
        read, new, changed = self._done.read, self._done.new, self._done.changed
        read.thoughts += len(thoughts)
        read.relations += len(relations)
        read.entities += len(described)
        read.observations += len(observations)
        if thoughts:
            added = self._store.add_thoughts(thoughts)
            new.thoughts += added.new
            changed.thoughts += added.changed
        if relations:
            new.relations += self._store.add_relations(relations)
        if described:
            added = self._store.add_entities(self._entities(described))
            new.entities += added.new
            changed.entities += added.changed
        if described or relations:
            ends = (end for each in relations for end in (each.source, each.target))
            names = [*dict.fromkeys((*ends, *(each.name for each in described.values())))]
            changed.entities += self._store.refresh_entity_texts(self._owner, names)
        if observations:
            new.observations += self._store.add_observations(observations).new

    def _entities(self, described: dict[str, lines.Described]) -> list[Entity]:
        """The entities of these lines, in words.

        A known entity keeps the spelling of its name, and its kind if these lines give none. Other imports may run at
        the same time, and relations may precede or follow their entities, in the same file or in another. At the end
        the store refreshes the texts of all entities in these lines.
        """
        names = [each.name for each in described.values()]
        known = {normalised(each.name): each for each in self._store.entities_named(self._owner, names)}
        entities = []
        for key, each in described.items():
            entity = known.get(key) or self._entity(each)
            entities.append(replace(entity, kind=each.kind or entity.kind))
        related = self._related(names)
        return [
            replace(each, text=entity_text(each.name, each.kind, related[normalised(each.name)])) for each in entities
        ]

    def _related(self, names: Sequence[str]) -> dict[str, list[Relation]]:
        related: dict[str, list[Relation]] = defaultdict(list)
        for relation in self._store.relations_of(self._owner, names):
            for end in {normalised(relation.source), normalised(relation.target)}:
                related[end].append(relation)
        return related

    def _entity(self, described: lines.Described) -> Entity:
        return Entity(
            id=uuid7(), owner=self._owner, name=described.name, kind=described.kind, text="", created_at=self._now
        )

    def _observation(self, entity: str, text: str) -> Observation:
        return Observation(id=uuid7(), owner=self._owner, entity=entity, text=text, created_at=self._now)


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
        thought = lines.thought_of(row, owner, now)
        return thought, tuple(key for key in row if not lines.is_thought_line_key(key))
    return lines.memory_of(row, owner), tuple(key for key in row if not lines.is_memory_line_key(row, key))


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


def _joined(described: Sequence[lines.Described]) -> dict[str, lines.Described]:
    """By name as it is compared; of an entity that is described twice the last kind counts, and all observations.

    A line without a kind does not remove the kind.
    """
    joined: dict[str, lines.Described] = {}
    for each in described:
        earlier = joined.get(normalised(each.name))
        observations = (*earlier.observations, *each.observations) if earlier else each.observations
        kind = each.kind or (earlier.kind if earlier else "")
        joined[normalised(each.name)] = replace(each, kind=kind, observations=observations)
    return joined


_PIECE_BATCH_SIZE: Final = 512
_BATCHES_KEPT: Final = 8  # a store that is written to for every few texts takes longer than the model

_Item = TypeVar("_Item")


def give_vectors(store: KnowledgePort, embedder: EmbedderPort, batch: int, advance: Callable[[int], None]) -> None:
    """Embed the records of all owners without a vector of this model, `batch` at a time, and report to `advance`.

    What was given stays when it ends early, and the next time goes on from there.

    Raises:
        EmbedderUnavailableError: the model does not answer, or not any more, or became another.
        AnalyticsUnavailableError: the store cannot be read or written.
    """
    embedder.embed(())  # raises if it cannot embed
    model = embedder.model
    for table in Table:
        earlier: set[UUID] = set()
        while pieces := store.without_vector(table, model, _PIECE_BATCH_SIZE):
            ids = {piece.id for piece in pieces}
            if ids <= earlier:  # another process with a different model removes the vectors again
                break
            earlier = ids
            for some in _parts(pieces, batch * _BATCHES_KEPT):
                texts = [searched_text(piece) for piece in some]
                rows = [row for part in _parts(texts, batch) for row in embedder.embed(part)]
                if embedder.model != model:
                    raise EmbedderUnavailableError("another model was loaded meanwhile")
                vectors = [Embedding(model=model, vector=row) for row in rows]
                store.set_vectors(table, [(piece.id, vector) for piece, vector in zip(some, vectors, strict=True)])
                advance(len(some))


def _parts(whole: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (whole[start : start + size] for start in range(0, len(whole), size))
