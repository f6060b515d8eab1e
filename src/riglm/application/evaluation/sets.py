"""Which directories hold the sets that are asked for."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from riglm.application.evaluation.lines import DatasetError

CATALOGUE: Final = "tools.jsonl"
"""The file that makes a directory a set."""


def find_sets(data: Path, names: Sequence[str] = (), *, side: str, file: str) -> list[Path]:
    """The directories of the named sets, each once; without names all that have the file on this side.

    `data` is the directory of sets, or the directory of one set, which is then the only one.

    Raises:
        DatasetError: there is no such directory or side, no set in it, or none of a name.
    """
    if Path(side).name != side or side in {"", ".."}:
        raise DatasetError(f"--side: {side!r} cannot be the name of a directory — fix: a side like dev")
    known = _sets_in(data)
    if not known:
        raise DatasetError(
            f"{data}: no set in it, which is a directory with {CATALOGUE} — fix: give --data the directory of sets, or "
            "that of one set"
        )
    wanted = list(dict.fromkeys(name.rstrip("/") for name in names))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise DatasetError(f"{data}: no set is called {unknown[0]!r} — fix: one of {', '.join(known)}")
    found = [known[name] for name in wanted or known]
    having = [directory for directory in found if (directory / side / file).exists()]
    missing = [directory for directory in found if directory not in having]
    if not having or (wanted and missing):
        place = missing[0] if wanted or len(found) == 1 else data
        raise DatasetError(f"{place}: no set with {side}/{file} — fix: {_other_side(missing, side, file)}")
    return having


def _sets_in(data: Path) -> Mapping[str, Path]:
    try:
        if (data / CATALOGUE).exists():
            own = data if data.name not in {"", ".."} else data.resolve()
            return {own.name: own}
        inside = sorted(data.iterdir())
        return {path.name: path for path in inside if (path / CATALOGUE).exists()}
    except OSError as error:
        raise DatasetError(f"{data}: {error.strerror} — fix: name a directory of sets with --data") from error


def _other_side(directories: Iterable[Path], side: str, file: str) -> str:
    there = sorted({path.parent.name for directory in directories for path in directory.glob(f"*/{file}")} - {side})
    return f"--side {' or '.join(there)}" if there else "other sets, which have such a file"
