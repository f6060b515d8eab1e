"""The words that start this riglm from anywhere, also from a window system that knows nothing of the shell's PATH."""

from collections.abc import Callable
from pathlib import Path

_PASSING = ("archive-v0", "environments-v2")


def own_command(
    executable: Path,
    which: Callable[[str], str | None],
    is_file: Callable[[Path], bool],
    same: Callable[[Path, Path], bool],
) -> tuple[str, ...]:
    """The command line of the riglm that this interpreter runs.

    What `uvx` or `pipx run` unpacked for one run is started by them again: their cache may be emptied at any time.
    """
    parts = executable.parts
    if any(part in parts for part in _PASSING) and (uvx := which("uvx")):
        return (uvx, "riglm")
    if "pipx" in parts and any("cache" in part for part in parts) and (pipx := which("pipx")):
        return (pipx, "run", "riglm")
    suffix = ".exe" if executable.suffix.lower() == ".exe" else ""
    beside = executable.with_name(f"riglm{suffix}")
    if not is_file(beside):
        return (str(executable), "-m", "riglm")
    known = which("riglm")
    return (known,) if known and Path(known).is_absolute() and same(Path(known), beside) else (str(beside),)
