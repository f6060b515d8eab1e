"""`riglm audit`: check the audit log."""

from pathlib import Path
from typing import Annotated

import typer

from riglm.cli.output import ConfigOption, JsonOption, print_json
from riglm.cli.store_access import configuration_of
from riglm.domain.errors import ConfigurationError, RiglmError, UnusableInputError

app = typer.Typer(name="audit", help="Check the audit log.", no_args_is_help=True, rich_markup_mode=None)
_MAX_SHOWN = 20


@app.callback()
def _audit() -> None:
    """The audit log."""


@app.command()
def verify(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="By default the `audit.file` of the configuration.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="HASH", help="Hash of the line that the first one must follow.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that no line was changed, removed from between others, or added; print the hash of the last one."""
    from riglm.domain import audit

    place = file or _get_audit_file(config)
    try:
        with place.open(encoding="utf-8", errors="replace") as lines:
            found = audit.verify((line.rstrip("\n") for line in lines), after)
    except OSError as error:
        raise UnusableInputError(f"{place} cannot be read ({error.strerror}) — fix: name the audit log") from error
    if as_json:
        faults = [{"line": line, "fault": fault} for line, fault in found.faults]
        print_json({"file": str(place), "lines": found.lines, "last_hash": found.last, "faults": faults})
    else:
        for line, fault in found.faults[:_MAX_SHOWN]:
            typer.echo(f"line {line}: {fault}")
        typer.echo(f"{found.lines} lines, the last one with the hash {found.last}")
    if not found.is_intact:
        count = len(found.faults) - len(found.cut)
        raise RiglmError(f"{place} was damaged or tampered with: {count} lines do not fit")


def _get_audit_file(config: Path | None) -> Path:
    place = configuration_of(config).settings.audit.file
    if not place or place == "-":
        raise ConfigurationError("audit.file names no file — fix: set it, or name the FILE to check")
    return Path(place).expanduser()
