"""`riglm control`: tokens and schema for users of the control API."""

import json
import os
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from riglm.cli.output import ConfigOption, JsonOption, print_json
from riglm.domain.errors import RiglmError, UnusableInputError
from riglm.domain.redaction import mask_url

if TYPE_CHECKING:
    from riglm.domain.schemas.downstream import ControlSettings


app = typer.Typer(name="control", help="Manage the control API.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _control() -> None:
    """The control API."""


@app.command()
def token(
    new: Annotated[
        bool, typer.Option("--new", help="Make new ones; a riglm that runs takes the old ones no longer.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens that riglm made for the control API, once: only their hashes are kept then."""
    from riglm.adapters.configuration.loading import Options, data_directory, load
    from riglm.adapters.control.tokens import FILE_NAME, TokenFile, hashed, make

    control = load(Options(config=config, with_servers=False)).settings.control
    file = TokenFile(data_directory(os.environ) / FILE_NAME)
    made = None if new else file.read()
    if made is None:
        file.write(made := make())
    plain = {scope: token.plain for scope, token in made.items()}
    if None in plain.values():
        raise RiglmError(
            f"the tokens in {file.path} were shown before, and only their hashes are kept — fix: riglm control token "
            "--new makes others"
        )
    if as_json:
        print_json(plain)
    else:
        for scope, text in plain.items():
            typer.echo(f"{scope:6}{text}")
    sys.stdout.flush()
    file.write(hashed(made))
    _warn_of_configured(control)


def _warn_of_configured(control: "ControlSettings") -> None:
    for key, given in (("token", control.token), ("read_token", control.read_token)):
        if given is not None:
            scope = "write" if key == "token" else "read"
            typer.echo(f"control.{key} is set: it counts in place of the {scope} token", err=True)


_TIMEOUT_SECONDS: Final = 10.0
_MAX_BYTES: Final = 32 * 1024 * 1024
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what listens on all is asked on loopback


class ControlApiUnavailableError(RiglmError):
    """Raised when no control API answers at a URL."""


class ControlApiRejectedError(RiglmError):
    """Raised when the control API refuses a request."""


class ControlApi:
    """The control API of a running riglm."""

    def __init__(self, url: str, token: str | None) -> None:
        """`url` is that of the dashboard.

        Raises:
            UnusableInputError: it is no URL of a control API.
        """
        self.url: Final = mask_url(url.rstrip("/"))
        """The URL of the dashboard, without a password."""
        try:
            self._parts = urlsplit(url.rstrip("/"))
            is_url = self._parts.scheme in {"http", "https"} and self._parts.hostname and self._parts.port != 0
        except ValueError:
            is_url = False
        if not is_url:
            raise UnusableInputError(
                f"--url: {mask_url(url)!r} is no address — fix: write it like http://127.0.0.1:8701"
            )
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str) -> Any:
        """Return what is at a path.

        Raises:
            ControlApiUnavailableError: there is no response, or none of a control API.
            ControlApiRejectedError: the response is a problem.
        """
        return self._send("GET", path)

    def put(self, path: str, document: Any) -> Any:
        """Put a document to a path, and return the response.

        Raises:
            ControlApiUnavailableError: there is no response, or none of a control API.
            ControlApiRejectedError: the response is a problem.
        """
        return self._send("PUT", path, json.dumps(document))

    def _send(self, method: str, path: str, content: str | None = None) -> Any:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=_TIMEOUT_SECONDS)
        headers = self._headers if content is None else {**self._headers, "Content-Type": "application/json"}
        try:
            connection.request(method, self._parts.path + path, content, headers)
            response = connection.getresponse()
            body = response.read(_MAX_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            raise ControlApiUnavailableError(
                f"no riglm answers at {self.url} ({error}) — fix: start one with control.enabled: true or `riglm serve "
                "--control`, or name its address with --url"
            ) from error
        finally:
            connection.close()
        try:
            read = json.loads(body)
        except ValueError as error:
            raise ControlApiUnavailableError(
                f"what answers at {self.url} is no control API — fix: name another --url"
            ) from error
        if response.status >= 400:
            raise _rejection(response.status, read)
        return read


def _rejection(status: int, read: Any) -> ControlApiRejectedError:
    detail = read.get("detail") if isinstance(read, dict) else None
    if status == 401:
        return ControlApiRejectedError(
            "riglm answers only those who have a token — fix: put the one that `riglm control token` prints into "
            "RIGLM_CONTROL_TOKEN"
        )
    return ControlApiRejectedError(f"riglm does not answer: {detail or f'status {status}'}")


def configured(config: Path | None, *, may_write: bool = False) -> tuple[str, str | None]:
    """Where the control API is by the configuration, and the token to look or to change with, if it has one.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    from riglm.adapters.configuration.loading import Options, load

    control = load(Options(config=config, with_servers=False)).settings.control
    host = _EVERYWHERE.get(control.host, control.host)
    token = control.token if may_write else control.read_token or control.token
    url = f"http://{f'[{host}]' if ':' in host else host}:{control.port}"
    return url, None if token is None else token.get_secret_value()
