"""`riglm login`, `logout` and `accounts`: sign-in at servers that require OAuth."""

import asyncio
import contextlib
import os
import select
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.mcp.oauth.accounts import Account
from riglm.adapters.mcp.oauth.sign_in import Redirect, sign_in
from riglm.adapters.mcp.oauth.token_requests import revoke
from riglm.adapters.mcp.oauth.unattended import obtain_tokens
from riglm.cli.output import (
    ConfigOption,
    JsonOption,
    json_time,
    print_json,
    print_result,
    print_rows,
    printable,
    written_time,
)
from riglm.cli.setup_access import configurations_in_use, find_sign_ins, installations, servers_to_sign_in
from riglm.container import Container
from riglm.domain.errors import RiglmError, UnusableInputError
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.upstream import UpstreamSpec

_POLL_SECONDS: Final = 0.1

_PrincipalOption = Annotated[
    str,
    typer.Option(
        "--principal",
        metavar="CALLER",
        help="The caller of `riglm serve` whose account it is; for servers whose callers have separate accounts.",
    ),
]
_ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="The server's name.")]


def login(
    server: Annotated[str | None, typer.Argument(metavar="SERVER", help="The server's name.")] = None,
    sign_in_all: Annotated[
        bool, typer.Option("--all", help="Sign in to each configured server that requires it and has no account.")
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the URL to open; accept the URL that the browser ends at.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Port on 127.0.0.1 for the redirect; 0 for any.")
    ] = 0,
    principal: _PrincipalOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign in to a server that requires OAuth, in the browser.

    Where no browser is found, the URL is printed, and you paste the URL that your browser ends at. Running processes
    use the tokens within a second. A server that `riglm init` left with its client for lack of an account is found too.
    """
    browser = None if no_browser else find_browser()
    if sign_in_all:
        if server is not None or principal:
            raise UnusableInputError("--all does not go with a server or --principal — fix: give one of them")
        _login_all(config, browser, port, as_json=as_json)
    elif server is None:
        raise UnusableInputError("no server is named — fix: give its name, or --all")
    else:
        account = sign_in_to(server, _find_server(server, config), browser, port, principal)
        print_result(_fields(account), _format_signed_in(account), as_json=as_json)


def sign_in_to(
    name: str, settings: ServerSettings, browser: Callable[[str], bool] | None, port: int = 0, principal: str = ""
) -> Account:
    """Sign in to a server in the browser, or by a pasted URL without one; return the account, which is stored.

    The account is that of `principal`, or of all callers.

    Raises:
        RiglmError: the server does not require a sign-in, or it failed.
    """
    accounts = Container().account_file()
    accounts.check()
    spec = replace(settings.spec(name), principal=principal)
    if principal and not spec.oauth.is_per_caller:
        raise UnusableInputError(f"{name} has one account for all callers — fix: set its `auth.accounts` to `caller`")
    account = asyncio.run(_obtain(spec, accounts.find(spec.account_key), browser, port))
    with accounts.locked(account.key):
        accounts.save(account)
    return account


def _login_all(config: Path | None, browser: Callable[[str], bool] | None, port: int, *, as_json: bool) -> None:
    done: list[dict[str, Any]] = []
    errors: list[str] = []
    for servers in _configured(config):
        signing_in = {
            name: each
            for name, each in servers.items()
            if each.url and not each.disabled and not each.spec(name).has_credentials
        }
        for name, is_needed in find_sign_ins(signing_in).items():
            try:
                account = sign_in_to(name, servers[name], browser, port) if is_needed else None
            except RiglmError as error:
                errors.append(str(error))
                continue
            if is_needed is None:
                errors.append(f"{name} does not respond, and may require a sign-in")
            if account is not None:
                done.append(_fields(account))
                if not as_json:
                    typer.echo(_format_signed_in(account))
    if as_json:
        print_json(done)
    elif not done and not errors:
        typer.echo("no server requires a sign-in and has no account")
    for each in errors:
        typer.echo(printable(each), err=True)
    if errors:
        raise typer.Exit(1)


def _format_signed_in(account: Account) -> str:
    caller = f" for {printable(account.principal)}" if account.principal else ""
    return f"signed in to {printable(account.server)} at {printable(account.issuer)}{caller}"


def logout(server: _ServerArgument, principal: _PrincipalOption = "", as_json: JsonOption = False) -> None:
    """Revoke and delete the tokens of a server."""
    accounts = Container().account_file()
    done: list[dict[str, Any]] = []
    for each in [each for each in accounts.list_accounts() if (each.server, each.principal) == (server, principal)]:
        with accounts.locked(each.key):
            account = accounts.find(each.key) or each
            accounts.delete(account)
        problem = revoke(account)
        if problem and not as_json:
            typer.echo(f"the tokens were not revoked, and stay valid until they expire: {printable(problem)}", err=True)
        done.append({**_fields(account), "revoked": not problem})
    if not done:
        raise RiglmError(f"there is no account for {printable(server)} — fix: use a name from `riglm accounts`")
    lines = [f"signed out of {printable(server)} at {printable(fields['issuer'])}" for fields in done]
    print_result(done, "\n".join(lines), as_json=as_json)


def list_accounts(as_json: JsonOption = False) -> None:
    """List the servers that riglm is signed in to. Tokens are not shown."""
    found = Container().account_file().list_accounts()
    rows = []
    for each in found:
        expiry = "refreshed automatically" if each.refresh_token else written_time(each.expires_at)
        rows.append((each.server, each.principal or "all callers", each.issuer, each.scope or "-", expiry))
    columns = ("server", "used by", "issuer", "scopes", "expiry")
    words = "no accounts; to sign in: riglm login SERVER"
    print_rows([_fields(each) for each in found], "Accounts", columns, rows, as_json=as_json, empty=words)


def _fields(account: Account) -> dict[str, Any]:
    """An account for JSON output."""
    return {
        "server": account.server,
        "principal": account.principal,
        "issuer": account.issuer,
        "scopes": account.scope.split(),
        "expires_at": json_time(account.expires_at),
        "refreshable": bool(account.refresh_token),
    }


def _find_server(name: str, config: Path | None) -> ServerSettings:
    """Return a server of the configurations in use.

    Raises:
        UnusableInputError: there is none, or it does not sign in.
    """
    servers = {key: each for found in _configured(config) for key, each in found.items()}
    if name not in servers and config is None:
        servers |= servers_to_sign_in()
    if name not in servers:
        known = ", ".join(key for key, each in servers.items() if each.url)
        fix = f"use one of {known}" if known else "add a server with a `url` to the configuration"
        raise UnusableInputError(f"there is no server {printable(name)!r} — fix: {fix}")
    if not servers[name].url:
        raise UnusableInputError(f"{name} is started by a command — fix: configure its tokens in `env`")
    if servers[name].spec(name).has_credentials:
        raise UnusableInputError(f"{name} has a fixed token — fix: remove it from `auth` or `headers` to sign in")
    return servers[name]


def _configured(config: Path | None) -> Iterator[dict[str, ServerSettings]]:
    """Yield the servers of each configuration in use."""
    for options, _ in configurations_in_use(Options(config=config), installations()):
        settings = load(options).settings
        single = {spec.name: settings.upstream for spec in settings.upstream_specs() if settings.upstream is not None}
        yield {**settings.mcp_servers, **single}


async def _obtain(
    spec: UpstreamSpec, known: Account | None, browser: Callable[[str], bool] | None, port: int
) -> Account:
    if spec.is_unattended:
        return await obtain_tokens(spec)
    redirect, loop, over = Redirect(), asyncio.get_running_loop(), threading.Event()

    def show(url: str) -> None:
        typer.echo(f"To sign in to {spec.name}, open:\n{printable(url)}", err=True)
        threading.Thread(target=open_page, args=(url,), name="riglm-browser", daemon=True).start()

    def open_page(url: str) -> None:
        if browser is None or not browser(url):  # may return only when the user closes the browser
            with contextlib.suppress(RuntimeError):  # the sign-in is over
                loop.call_soon_threadsafe(_read_pasted, redirect, over)

    def confirm(issuer: str) -> bool:
        question = (
            f"{spec.place} uses the authorization server {printable(issuer)}. Send it the secret of `auth.client_id`?"
        )
        return sys.stdin.isatty() and typer.confirm(question, err=True)

    scopes = tuple(dict.fromkeys((*spec.oauth.scopes, *(known.step_up_scopes if known else ()))))
    try:
        async with await redirect.listen(port):
            return await sign_in(spec, redirect, show, confirm, scopes, known)
    finally:
        over.set()


def find_browser() -> Callable[[str], bool] | None:
    """Return what opens a URL in a browser, None without a browser or a screen."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform not in {"darwin", "win32"} and not any(map(os.environ.get, screens)):
        return None
    try:
        return webbrowser.get().open
    except webbrowser.Error:
        return None


def _read_pasted(redirect: Redirect, over: threading.Event) -> None:
    """Read URLs from stdin in a thread until the sign-in is over; the process may end before that."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        rest = b""
        with contextlib.suppress(OSError, RuntimeError):  # stdin is closed, or the sign-in is over
            while _is_readable(over) and (chunk := os.read(0, 65_536)):  # sys.stdin would stay locked at the end
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(bytes.strip, lines):
                    loop.call_soon_threadsafe(take, line)

    def take(line: bytes) -> None:
        problem = redirect.accept(line.decode("utf-8", "replace"))
        if problem:
            typer.echo(f"{problem}; paste the whole URL", err=True)

    typer.echo("\nThen paste the URL that the browser ends at, even if it shows an error:", err=True)
    threading.Thread(target=read, name="riglm-paste", daemon=True).start()


def _is_readable(over: threading.Event) -> bool:
    """Wait until stdin has something to read; return False when the sign-in is over, so that others can read it."""
    while sys.platform != "win32" and not over.is_set() and not select.select([0], [], [], _POLL_SECONDS)[0]:
        pass
    return not over.is_set()
