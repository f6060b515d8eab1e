"""Findings of `riglm doctor`."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters, least first.

    `OK`: it is as it should be. `NOTE`: good to know, nothing needs to be done. `WARNING`: it works, and something is
    lost or will go wrong. `ERROR`: something does not work.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class DoctorSection(StrEnum):
    """Parts that are examined, in the order of the report."""

    CONFIGURATION = "configuration"
    SERVERS = "servers"
    TOOLS = "tools"
    STORE = "store"
    EMBEDDER = "embedder"
    PORTS = "ports"
    CLIENTS = "clients"
    KNOWLEDGE = "knowledge"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: where, what, and what to do about it, as a command or a key to set.

    `fix` is empty where nothing needs to be done.
    """

    section: DoctorSection
    severity: Severity
    place: str
    what: str
    fix: str = ""


def is_healthy(findings: Iterable[Finding]) -> bool:
    """True if no finding is a warning or an error."""
    return all(finding.severity in {Severity.OK, Severity.NOTE} for finding in findings)
