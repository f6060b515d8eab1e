"""What lies in spools, looked at from outside: nothing is made, adopted or changed."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from riglm.adapters.spool.claim import is_held
from riglm.adapters.spool.directory import lock_of
from riglm.adapters.spool.segment import VERSION, bodies, segments_in, version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolFound:
    """The spool of one process; `is_held` is True while that runs, or another one that adopted it.

    `records` are those that can be read, `damaged` those that cannot; `newer` are segments of a newer riglm.
    """

    path: Path
    is_held: bool
    segments: int
    records: int
    damaged: int
    newer: int
    size_bytes: int


def survey(root: Path) -> list[SpoolFound]:
    """Return every spool below `root`, by name; those that vanish meanwhile are left out. Raises `OSError`."""
    found = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        with suppress(FileNotFoundError):
            if path.is_dir():
                found.append(_looked_at(path))
    return found


def _looked_at(path: Path) -> SpoolFound:
    records = damaged = newer = size = 0
    segments = segments_in(path)
    for segment in segments:
        try:
            data = segment.read_bytes()
        except FileNotFoundError:
            continue
        size += len(data)
        if version_of(data) > VERSION:
            newer += 1
            continue
        for body in bodies(data):
            records += body is not None
            damaged += body is None
    return SpoolFound(
        path=path,
        is_held=is_held(lock_of(path)),
        segments=len(segments),
        records=records,
        damaged=damaged,
        newer=newer,
        size_bytes=size,
    )
