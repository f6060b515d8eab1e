"""`riglm control`: tokens and schema for users of the control API."""

import json
import os
import sys
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
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
    _tell_of_configured(control)


def _tell_of_configured(control: "ControlSettings") -> None:
    for key, given in (("token", control.token), ("read_token", control.read_token)):
        if given is not None:
            scope = "write" if key == "token" else "read"
            typer.echo(f"control.{key} is set: it counts in place of the {scope} token", err=True)


_TIMEOUT_SECONDS: Final = 10.0
_MAX_BYTES: Final = 32 * 1024 * 1024
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what listens on all is asked on loopback


class ControlApiUnavailableError(RiglmError):
    """There is no control API at this URL."""


class ControlApiRejectedError(RiglmError):
    """The control API does not answer this, or not to us."""


class ControlApi:
    """One control API, asked over one connection that is opened again when it broke."""

    def __init__(self, url: str, token: str | None) -> None:
        """`url` is where the page is.

        Raises:
            UnusableInputError: it is no URL of a control API.
        """
        self.url: Final = mask_url(url.rstrip("/"))
        """Where the page is, as it may be shown."""
        try:
            parts = urlsplit(url.rstrip("/"))
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _no_url(url) from error
        if parts.scheme not in {"http", "https"} or not host:
            raise _no_url(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(host, port, timeout=_TIMEOUT_SECONDS)
        self._path = parts.path
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str) -> Any:
        """What is answered.

        Raises:
            ControlApiUnavailableError: there is no response, or none of a control API.
            ControlApiRejectedError: it answers with a problem.
        """
        return self._asked("GET", path, None)

    def put(self, path: str, document: Any) -> Any:
        """What is answered to a document that is put there.

        Raises:
            ControlApiUnavailableError: there is no response, or none of a control API.
            ControlApiRejectedError: it answers with a problem.
        """
        return self._asked("PUT", path, json.dumps(document).encode())

    def _asked(self, method: str, path: str, content: bytes | None) -> Any:
        try:
            answer = self._answer(method, path, content)
            body = answer.read(_MAX_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            self._connection.close()
            raise ControlApiUnavailableError(
                f"no riglm answers at {self.url} ({error}) — fix: start one with control.enabled: true or `riglm serve "
                "--control`, or name its address with --url"
            ) from error
        try:
            read = json.loads(body)
        except ValueError as error:
            raise ControlApiUnavailableError(
                f"what answers at {self.url} is no control API — fix: name another --url"
            ) from error
        if answer.status >= 400:
            raise _refused(answer.status, read)
        return read

    def _answer(self, method: str, path: str, content: bytes | None) -> HTTPResponse:
        was_open = self._connection.sock is not None
        try:
            return self._sent(method, path, content)
        except ConnectionError:
            if not was_open:
                raise
            self._connection.close()  # it lay idle, and was closed meanwhile
            return self._sent(method, path, content)

    def _sent(self, method: str, path: str, content: bytes | None) -> HTTPResponse:
        headers = self._headers if content is None else {**self._headers, "Content-Type": "application/json"}
        self._connection.request(method, self._path + path, content, headers)
        return self._connection.getresponse()


def _no_url(url: str) -> UnusableInputError:
    return UnusableInputError(f"--url: {mask_url(url)!r} is no address — fix: write it like http://127.0.0.1:8701")


def _refused(status: int, read: Any) -> ControlApiRejectedError:
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
