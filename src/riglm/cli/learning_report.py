"""The summary that `riglm learn-from` prints."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from riglm.cli.output import print_table, printable
from riglm.domain.transcripts import Account

if TYPE_CHECKING:
    from riglm.domain.schemas.retention import Retention

_MOST_SERVERS: Final = 10
_COLUMNS: Final = ("client", "files", "sessions", "calls", "tools", "servers", "known before", "left out")


def show(accounts: Sequence[Account], kept: "Retention", *, dry_run: bool, contexts_failed: str) -> None:
    """A table of clients, and words on what was left out."""
    there = [account for account in accounts if account.files]
    if not there:
        typer.echo("no transcripts were found — fix: name a file or a folder of them, as in `riglm learn-from PATH`")
        return
    title = "What would be learned" if dry_run else "What was learned"
    print_table(title, _COLUMNS, [_row(account) for account in there])
    for account in there:
        for line in _remarks(account, kept):
            typer.echo(printable(f"{account.client}: {line}"), err=True)
    if contexts_failed:
        typer.echo(f"what was asked for is not learned: {contexts_failed}", err=True)
    if not dry_run and any(account.new for account in there):
        typer.echo("a running riglm learns this when it starts again")


def shown_for_programs(accounts: Sequence[Account], *, dry_run: bool, contexts_failed: str) -> dict[str, Any]:
    """The same, and every number, for programs."""
    return {
        "dry_run": dry_run,
        "contexts_failed": contexts_failed or None,
        "clients": [
            {
                "client": account.client,
                "are_names_guessed": account.are_names_guessed,
                "files": account.files,
                "bytes": account.size,
                "sessions": account.sessions,
                "calls": {
                    "read": account.read,
                    "new": account.new,
                    "known": account.known,
                    "recorded_live": account.live,
                    "copied": account.copied,
                    "not_run": account.not_run,
                    "too_old": account.too_old,
                    "expired": account.expired,
                    "future": account.future,
                    "forgotten": account.forgotten,
                    "own_tools": account.own,
                    "elsewhere": sum(account.elsewhere.values()),
                },
                "tools": sorted(account.tools),
                "servers": sorted(account.servers),
                "elsewhere": dict(sorted(account.elsewhere.items())),
                "damaged_lines": account.damaged_lines,
                "damaged": [{"file": file, "line": line, "reason": reason} for file, line, reason in account.damaged],
                "unreadable": account.unreadable,
            }
            for account in accounts
        ],
    }


def _row(account: Account) -> tuple[str | int, ...]:
    return (
        account.client,
        account.files,
        account.sessions,
        account.new,
        len(account.tools),
        len(account.servers),
        account.known,
        account.left_out - account.known,
    )


def _remarks(account: Account, kept: "Retention") -> list[str]:
    told = [
        (account.live, "calls were recorded by riglm itself"),
        (account.copied, "calls are copies, in conversations that were resumed"),
        (account.not_run, "calls did not run: they were refused, or there was no such tool"),
        (account.too_old, "calls are older than --since"),
        (
            account.expired,
            f"calls are older than the {kept.invocation_days:g} days that the store keeps — fix: set "
            "retention.invocation_days to more, or to 0 for no limit, and run this once more",
        ),
        (account.future, "calls are of a time that is still to come: the clock was wrong when they were written down"),
        (account.forgotten, "calls are of an erased client, session or principal (riglm db forget)"),
        (account.own, "calls were of meta-tools"),
    ]
    remarks = [f"left out: {count} {what}" for count, what in told if count]
    if account.are_names_guessed and account.new:
        remarks.append(
            "no configuration names its servers: tools are learned as SERVER__TOOL — fix, where riglm calls them "
            "otherwise: `riglm init`, or --config, and this once more"
        )
    if account.elsewhere:
        most = sorted(account.elsewhere.items(), key=lambda each: (-each[1], each[0]))
        named = ", ".join(f"{server} ({count})" for server, count in most[:_MOST_SERVERS])
        more = f" and {len(most) - _MOST_SERVERS} more" if len(most) > _MOST_SERVERS else ""
        remarks.append(
            f"left out: calls of servers that no riglm proxies: {named}{more} — fix: `riglm init` moves the "
            "servers of a client behind riglm; or name the configuration that has them by --config"
        )
    remarks += [f"left out: {file} line {line}: {reason}" for file, line, reason in account.damaged]
    if account.damaged_lines > len(account.damaged):
        remarks.append(f"left out: {account.damaged_lines - len(account.damaged)} more lines that cannot be read")
    return remarks + [f"left out: {file}: {reason}" for file, reason in account.unreadable.items()]
