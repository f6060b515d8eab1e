"""`riglm tools changes` and `approve`, and `riglm trust`: which tools are approved."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from riglm.adapters.audit import audit_log
from riglm.adapters.configuration.locations import data_directory
from riglm.cli import usage
from riglm.cli.output import ConfigOption, JsonOption, json_time, print_result, print_table, printable, written_time
from riglm.cli.store_access import require_store, settings_of
from riglm.container import Container
from riglm.domain.audit import AuditEvent
from riglm.domain.errors import RiglmError, UnusableInputError, failed_write
from riglm.domain.schemas.settings import Settings
from riglm.domain.tool_pin import ToolPin, merge_pins

tools = typer.Typer(
    name="tools",
    help="List recorded tools, and approve those that changed.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
trust = typer.Typer(
    name="trust", help="Keep the list of approved tools as a file.", no_args_is_help=True, rich_markup_mode=None
)


@tools.callback()
def _tools(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List recorded tools, and approve those that changed.

    The list counts calls in the sessions that `riglm stats` counts.
    """
    if ctx.invoked_subcommand is None:
        usage.tools(config, as_json)


@tools.command()
def changes(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what changed in tools since they were approved."""
    found = _list_changed(config)
    shown = [[pin.server, pin.name, pin.seen_digest] for pin in found]
    with contextlib.suppress(OSError):  # then -y needs --digest
        _shown_file().write_text(json.dumps(shown), "utf-8")
    if as_json or not found:
        fields = [{**_pin_fields(pin), "diff": pin.diff} for pin in found]
        print_result(fields, "no tool changed since it was approved", as_json=as_json)
        return
    _print_changes(found)
    typer.echo("to approve: riglm tools approve SERVER [TOOL ...]")


@tools.command()
def approve(
    server: Annotated[str | None, typer.Argument(metavar="SERVER", help="The server's name.")] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOOL", help="The server's own names of tools; by default all.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Approve the tools of all servers.")] = False,
    digests: Annotated[
        list[str] | None,
        typer.Option("--digest", metavar="SHA256", help="Approve only definitions with this digest; may be repeated."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; only what `riglm tools changes` showed last, or --digest.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve tools as their server lists them now, after a question.

    Running processes notice within seconds.
    """
    if everything is (server is not None):
        raise UnusableInputError("which tools to approve is not clear — fix: name a SERVER, or give --all")
    changed = _list_changed(config)
    found = [pin for pin in changed if server in {None, pin.server} and (not names or pin.name in names)]
    missing = sorted(set(names or ()) - {pin.name for pin in found})
    if missing:
        raise RiglmError(
            f"{server} has no changed tool {printable(', '.join(missing))} — fix: use names from `riglm tools changes`"
        )
    if digests:
        found = _with_digests(found, digests, changed)
    elif yes:
        _require_shown(found)
    if found and not yes:
        _print_changes(found)
        typer.confirm(f"Approve {len(found)} tool{'s' if len(found) > 1 else ''}?", abort=True, err=True)
    if found:
        settings = settings_of(config)
        with require_store(settings).analytics() as store:
            store.approve_tools([replace(pin, digest=pin.seen_digest, definition=pin.seen) for pin in found])
        _audit_approval(settings, found)
    words = printable(", ".join(f"{pin.server}/{pin.name}" for pin in found)) or "nothing to do"
    print_result([_pin_fields(pin) for pin in found], f"approved: {words}", as_json=as_json)


@trust.command("export")
def export_file(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="By default standard output.")] = None,
    config: ConfigOption = None,
) -> None:
    """Write the approved tools of all servers as JSON.

    The file has the digest of each definition.
    """
    servers: dict[str, dict[str, dict[str, str]]] = {}
    for pin in _list_pins(config):
        if pin.digest:
            servers.setdefault(pin.server, {"tools": {}})["tools"][pin.name] = pin.digest
    text = json.dumps({"version": 1, "servers": servers}, indent=2) + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        try:
            file.write_text(text, "utf-8")
        except OSError as error:
            raise UnusableInputError(failed_write(file, error, "name another")) from error


@trust.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `riglm trust export`.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve exactly the tools of a file, for each server in it.

    Other servers stay as they are.
    """
    approved = _read_approvals(file)
    settings = settings_of(config)
    container = Container(settings=settings)
    spooled = container.spooled_pins()
    now = time.time()
    unseen = partial(ToolPin, digest="", definition=b"", seen_digest="", seen=b"", pinned_at=now, seen_at=now)
    with container.analytics() as store:
        pins = merge_pins(store.list_tool_pins(), spooled)
        known = {(pin.server, pin.name): pin for pin in pins if pin.server in approved}
        wanted = [
            replace(known.get((server, name)) or unseen(server=server, name=name), digest=digest, definition=b"")
            for server, digests in approved.items()
            for name, digest in digests.items()
        ]
        named = {(pin.server, pin.name) for pin in wanted}
        withdrawn = [replace(pin, digest="", definition=b"") for key, pin in known.items() if key not in named]
        store.approve_tools([*wanted, *withdrawn])
    _audit_approval(settings, [replace(pin, seen_digest=pin.digest) for pin in wanted])
    counts = {"servers": len(approved), "approved": len(wanted), "withdrawn": sum(bool(p.seen) for p in withdrawn)}
    words = "{approved} tools of {servers} servers are approved; {withdrawn} others are not".format(**counts)
    print_result(counts, words, as_json=as_json)


def _pin_fields(pin: ToolPin) -> dict[str, Any]:
    """A tool that changed, for JSON output."""
    return {
        "server": pin.server,
        "tool": pin.name,
        "change": pin.change.value if pin.change else None,
        "resembles": pin.resembles or None,
        "digest": pin.digest or None,
        "seen_digest": pin.seen_digest or None,
        "pinned_at": json_time(pin.pinned_at),
        "seen_at": json_time(pin.seen_at),
    }


def _with_digests(found: Iterable[ToolPin], digests: Iterable[str], changed: Iterable[ToolPin]) -> list[ToolPin]:
    """Return the tools whose server lists a definition with one of these digests.

    Raises:
        RiglmError: none of these tools has one of them; the message names one in `changed` that has.
    """
    chosen = [pin for pin in found if pin.seen_digest in set(digests)]
    missing = sorted(set(digests) - {pin.seen_digest for pin in chosen})
    other = next((pin for pin in changed if pin.seen_digest in missing), None)
    if other is not None:
        name = printable(f"{other.server}/{other.name}")
        raise RiglmError(f"{name}: has the digest {other.seen_digest}, and is not among those named — fix: name it")
    if missing:
        raise RiglmError(
            f"no changed tool has the digest {printable(missing[0])} — fix: look at `riglm tools changes` again"
        )
    return chosen


def _shown_file() -> Path:
    """The file with the digests that `riglm tools changes` showed last."""
    return data_directory(os.environ) / "shown-tool-changes.json"


def _require_shown(found: Iterable[ToolPin]) -> None:
    """Refuse definitions that `riglm tools changes` did not show last.

    Raises:
        RiglmError: there is one.
    """
    shown: list[list[str]] = []
    with contextlib.suppress(OSError, ValueError, TypeError):
        shown = list(json.loads(_shown_file().read_text("utf-8")))
    unseen = [f"{pin.server}/{pin.name}" for pin in found if [pin.server, pin.name, pin.seen_digest] not in shown]
    if unseen:
        raise RiglmError(
            f"{printable(', '.join(unseen))}: not shown as listed now — fix: look at `riglm tools changes` first, "
            "or give --digest"
        )


def _list_changed(config: Path | None) -> list[ToolPin]:
    return [pin for pin in _list_pins(config) if pin.change is not None]


def _list_pins(config: Path | None) -> Sequence[ToolPin]:
    """Return all pins, with those that wait in spools for the store."""
    settings = settings_of(config)
    spooled = Container(settings=settings).spooled_pins()
    with require_store(settings).analytics() as store:
        return merge_pins(store.list_tool_pins(), spooled)


def _audit_approval(settings: Settings, approved: Iterable[ToolPin]) -> None:
    if settings.audit.file:
        with audit_log(settings.audit.file) as audit:
            for pin in approved:
                about = {"upstream": pin.server, "tool": pin.name, "digest": pin.seen_digest}
                audit(AuditEvent.TOOL_APPROVED, about)


def _print_changes(found: Sequence[ToolPin]) -> None:
    for pin in found:
        digest = f", digest {pin.seen_digest}" if pin.seen_digest else ""
        typer.echo(f"{printable(pin.server)}/{printable(pin.name)}: {pin.change}{digest}")
        for line in pin.diff:
            typer.echo(f"  {printable(line)}")
    columns = ("server", "tool", "change", "resembles", "seen")
    rows = [(pin.server, pin.name, pin.change or "", pin.resembles or "-", written_time(pin.seen_at)) for pin in found]
    print_table("Tools that are not as approved", columns, rows)


class _ApprovedServer(BaseModel):
    """The approved tools of one server: the SHA-256 of each definition, by the server's own names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tools: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]]


class _ApprovedTools(BaseModel):
    """The file of `riglm trust export` and `import`: all approved tools, by server."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1] = 1
    servers: dict[str, _ApprovedServer]


def _read_approvals(file: Path) -> dict[str, dict[str, str]]:
    try:
        read = _ApprovedTools.model_validate_json(file.read_bytes())
    except OSError as error:
        raise UnusableInputError(f"{file} cannot be read ({error.strerror}) — fix: name another") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise UnusableInputError(
            f"{file}: {printable(place)}: {first['msg']} — fix: use a file of `riglm trust export`"
        ) from error
    return {name: one.tools for name, one in read.servers.items()}
