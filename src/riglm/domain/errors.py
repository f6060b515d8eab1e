"""Errors that riglm raises, in words that a user can act on, and shortages of the machine (disk, processes)."""

import errno
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


class RiglmError(Exception):
    """riglm cannot go on; the message names the place and the fix."""


class UnusableInputError(RiglmError):
    """What the user gave cannot be used, be it a setting, an option or data; nothing was done."""


class ConfigurationError(UnusableInputError):
    """The configuration is not usable. Its message names the file, the path inside it, and the fix."""


class UpstreamUnavailableError(RiglmError):
    """An upstream cannot be reached, died, or did not answer in time."""


class AnalyticsUnavailableError(RiglmError):
    """The analytics store cannot be read or written; the cause is kept."""


class SchemaTooNewError(AnalyticsUnavailableError):
    """The store was written by a newer riglm; it is left untouched. Upgrade riglm or choose another store."""


class NoStoreError(AnalyticsUnavailableError, ConfigurationError):
    """What the configuration names as the store is a file of something else; it is left untouched."""


class StateUnavailableError(RiglmError):
    """What the processes share of their sessions cannot be read now; each goes on with what it knows itself."""


class ControlError(RiglmError):
    """What was asked of the control API cannot be had or done; nothing was changed."""


class NotFoundError(ControlError):
    """There is no session, tool or override of this name."""


class ConflictError(ControlError):
    """The request is based on an outdated state, or on one in which it cannot be done."""


class PreconditionError(ControlError):
    """The request holds for a version that this riglm never made."""


class ControlUnavailableError(ControlError):
    """The answer was not ready in time, or the store is unavailable; retrying later may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One invalid part of a request: `path` names the part, `detail` the problem and the fix."""

    path: str
    detail: str


class InvalidInputError(ControlError):
    """What was given is not usable."""

    def __init__(self, *faults: FieldError) -> None:
        """`faults` are all that were found, one at least."""
        super().__init__("; ".join(f"{fault.path}: {fault.detail}" for fault in faults))
        self.faults: Final = faults


_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_THREAD: Final = "can't start new thread"
TOO_FEW_PROCESSES: Final = "no further process or thread is allowed for this user"
MORE_PROCESSES: Final = "end processes that are not needed, or raise the limit (`ulimit -u`, or the container's)"


def missing_extra(what: str, extra: str) -> str:
    """Return the message where a library is not installed that comes with an extra of riglm."""
    return f"{what} is not installed — fix: pip install 'riglm[{extra}]' in the environment of riglm"


def failed_write(path: Path, error: OSError, fix: str, *, subject: str = "") -> str:
    """Return the message for a file or folder that cannot be written; of a full disk it has the place and the fix.

    `subject` is what cannot be written if that is more than the path, `fix` the fix for all other reasons.
    """
    if is_full_disk(error):
        return f"{subject or path} cannot be written: {full_disk(path, error)}"
    return f"{subject or path} cannot be written ({error.strerror}) — fix: {fix}"


def is_full_disk(error: OSError) -> bool:
    """True if there is no space left, or a quota is used up."""
    return error.errno in _NO_SPACE


def full_disk(path: Path, error: OSError | None = None) -> str:
    """Return which disk has no space left for a path, and the fix."""
    what = "the quota is used up on" if error is not None and error.errno == errno.EDQUOT else "no space is left on"
    whole = path.absolute()
    folder = next((each for each in (whole, *whole.parents) if each.is_dir()), whole)
    return f"{what} the disk of {folder} — fix: free space there"


def is_too_few_processes(error: BaseException) -> bool:
    """True if the system refused a thread or a process."""
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    if not isinstance(error, BlockingIOError) or error.errno != errno.EAGAIN:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).name in {"subprocess.py", "popen_fork.py"} for frame in frames)


def shortage_in(error: BaseException) -> str:
    """Return the message for a failure that a shortage caused, directly or not; empty if none did."""
    for cause in _causes(error):
        if is_too_few_processes(cause):
            return f"{TOO_FEW_PROCESSES} — fix: {MORE_PROCESSES}"
        if isinstance(cause, OSError) and is_full_disk(cause):
            path = Path(os.fsdecode(cause.filename)) if isinstance(cause.filename, str | bytes) else Path.cwd()
            return full_disk(path, cause)
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen, waiting = set[int](), [error]
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        waiting += [each for each in (*inner, cause.__cause__, cause.__context__) if each is not None]
