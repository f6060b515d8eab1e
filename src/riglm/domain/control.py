"""Errors of the control API, and the configuration that it returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from riglm.domain.errors import RiglmError


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedConfiguration:
    """The configuration in force, with masks in the place of secrets.

    `version` grows with every change, and differs in every process.
    """

    version: int
    document: Mapping[str, Any]
