"""Sends the requests of one upstream server with the access token of its account."""

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from riglm.adapters.mcp.oauth.accounts import Account, AccountFile
from riglm.adapters.mcp.oauth.token_requests import add_wanted_scope, current_account
from riglm.adapters.mcp.upstream.refusals import required_scope
from riglm.adapters.mcp.wire.http_client import (
    HttpClient,
    HttpClientError,
    HttpExchange,
    HttpHeaders,
    HttpResponseSink,
    Target,
)
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import UpstreamSpec

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_MAX_REFUSAL_BYTES: Final = 1 << 16
_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 10.0
"""Seconds between attempts to refresh a token that is still valid."""

_log: Final = logging.getLogger("riglm.upstream")


class SignedInClient:
    """Adds the access token, and renews it in a thread before it expires and when the server refuses it.

    Requests wait for that only if the token has expired. All that wait share one renewal, and are sent again once.
    """

    def __init__(self, client: HttpClient, accounts: AccountFile, spec: UpstreamSpec) -> None:
        """Nothing is read before the first request."""
        self.http = client
        self.line = b""
        """The header with the access token."""
        self._accounts = accounts
        self._spec = spec
        self._token = ""
        self._refused = ""
        """The access token to replace because the server refused it."""
        self._file_version = self._find_file_version()
        self._next_look = 0.0
        must_read = spec.is_unattended or self._file_version is not None
        self._refresh_at = self._expires_at = 0.0 if must_read else math.inf
        self._waiting: list[_SignedRequest] = []
        self._renewal: asyncio.Task[None] | None = None
        self._step_ups: set[asyncio.Task[None]] = set()

    def send(
        self, target: Target, method: bytes, header_block: bytes, body: bytes, sink: HttpResponseSink
    ) -> HttpExchange:
        """Send a request as `HttpClient.send` does."""
        request = _SignedRequest(self, (target, method, header_block, body), sink)
        now = time.time()
        if now >= self._expires_at or self._is_file_changed(now):
            request.wait()
            self.renew(request)
        else:
            if now >= self._refresh_at:
                self.renew()
            request.go()
        return request.exchange

    def _is_file_changed(self, now: float) -> bool:
        """True if a sign-in, a sign-out or another process changed the file; looks once a second."""
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        before, self._file_version = self._file_version, self._find_file_version()
        return before != self._file_version

    def _find_file_version(self) -> tuple[int, int] | None:
        try:
            status = os.lstat(self._accounts.path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def renew(self, request: "_SignedRequest | None" = None) -> None:
        """Renew the token; a request waits for it, and goes on with the new token, or without one."""
        if request is not None:
            self._waiting.append(request)
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(self._renew())

    def replace_refused(self, request: "_SignedRequest") -> None:
        """Renew the token because the server refused it, and let the request wait for that."""
        self._refused = self._token
        self.renew(request)

    def step_up(self, request: "_SignedRequest", scope: str) -> None:
        """Store a scope that the token lacks; the request goes on with the token of a later sign-in, if any."""
        task = asyncio.get_running_loop().create_task(self._step_up(request, scope))
        self._step_ups.add(task)
        task.add_done_callback(self._step_ups.discard)

    def close(self) -> None:
        """Stop renewing; requests that wait are not sent."""
        for task in (self._renewal, *self._step_ups):
            if task is not None:
                task.cancel()

    async def _step_up(self, request: "_SignedRequest", scope: str) -> None:
        add_scope = partial(add_wanted_scope, self._accounts, self._spec, self._token, scope)
        try:
            account = await _in_thread(add_scope)
            if account is not None and account.access_token != self._token:
                self._take(account)
        except Exception:  # noqa: BLE001  # the request must end, regardless of the reason
            _log.exception("required scope not stored", extra={"upstream": self._spec.name})
        request.renewed("")

    async def _renew(self) -> None:
        problem, is_refused = "", True
        try:
            while is_refused:  # again if the token was refused while the account was read
                refused = self._refused
                self._take(await _in_thread(partial(current_account, self._accounts, self._spec, refused)))
                is_refused = self._token == self._refused != refused
        except RiglmError as error:
            problem = str(error)
        except Exception:  # noqa: BLE001  # requests that wait must fail, regardless of the reason
            _log.exception("token refresh failed", extra={"upstream": self._spec.name})
            problem = "see riglm's log"
        if problem:
            self._refresh_at = time.time() + _RETRY_SECONDS
            self._expires_at = self._expires_at or math.inf  # no account was read: the server may be public
            _log.warning("access token not refreshed", extra={"upstream": self._spec.name, "reason": problem})
        self._renewal, self._refused = None, ""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request.renewed(problem)

    def _take(self, account: Account | None) -> None:
        self._token = account.access_token if account else ""
        self.line = f"authorization: Bearer {self._token}\r\n".encode("ascii") if account else b""
        renewable = account is not None and (bool(account.refresh_token) or self._spec.is_unattended)
        self._refresh_at = (account.refresh_at if account and renewable else None) or math.inf
        self._expires_at = (account.expires_at if account and renewable else None) or math.inf


def _in_thread(work: Callable[[], Account | None]) -> asyncio.Future[Account | None]:
    """Run `work` in a thread that does not keep the process from ending, as those of `asyncio.to_thread` do."""
    result: Future[Account | None] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001  # for the task that waits
            result.set_exception(error)

    threading.Thread(target=run, name="riglm-token-renewal", daemon=True).start()
    return asyncio.wrap_future(result)


class _SignedRequest(HttpResponseSink):
    """One request until its first response: if that refuses the token, the request waits for a different one."""

    __slots__ = ("_body", "_client", "_lacking", "_line", "_parts", "_refusal", "_sink", "_status", "exchange")

    def __init__(
        self, client: SignedInClient, parts: tuple[Target, bytes, bytes, bytes], sink: HttpResponseSink
    ) -> None:
        """`parts` are the target, method, header block and body."""
        self.exchange = HttpExchange(b"", sink, parts[0])
        self._client = client
        self._parts = parts
        self._sink = sink
        self._line = b""
        self._refusal: HttpHeaders | None = None
        self._body = b""
        self._status = 0
        self._lacking = ""

    def go(self) -> None:
        """Send the request with the current token."""
        self._line = self._client.line
        target, method, header_block, body = self._parts
        sink = self if self._refusal is None else self._sink
        self._client.http.send(target, method, header_block + self._line, body, sink, self.exchange)

    def wait(self) -> None:
        """Hold the exchange until `renewed`."""
        self.exchange.holder = self
        self.exchange.sink = self._sink

    def renewed(self, problem: str) -> None:
        """Go on after a renewal, which failed if there is a `problem`; a token that is not new is not sent again."""
        if self.exchange.holder is not self:
            return  # aborted
        if problem and (self._line or self._refusal is not None):
            words = f"{self.exchange.place}: no access token: {problem}"
            self.exchange.fail(HttpClientError(words, sent=False))
        elif self._refusal is not None and self._line == self._client.line:
            self._sink.head(self._status, self._refusal)
            if self._body:
                self._sink.data(self._body)
            self.exchange.end()
        else:
            self.go()

    def abandon(self, exchange: HttpExchange) -> None:
        """Nothing is sent for an exchange that waits."""

    def flow(self, exchange: HttpExchange) -> None:
        """Nothing is read for an exchange that waits."""

    def head(self, status: int, headers: HttpHeaders) -> None:
        self._status = status
        challenge = headers.get(b"www-authenticate") or b""
        self._lacking = required_scope(challenge) if status == _FORBIDDEN and self._line else ""
        if status == _UNAUTHORIZED or self._lacking:
            self._refusal = headers
        else:
            self.exchange.sink = self._sink
            self._sink.head(status, headers)

    def data(self, chunk: bytes) -> None:
        """Keep the body of a refusal, which the caller gets if no other token helps."""
        self._body += chunk[: _MAX_REFUSAL_BYTES - len(self._body)]

    def end(self) -> None:
        self.wait()
        if self._line == self._client.line:
            if self._lacking:
                self._client.step_up(self, self._lacking)
            else:
                self._client.replace_refused(self)
        else:
            self.renewed("")  # renewed while the refusal was on its way

    def failed(self, failure: HttpClientError) -> None:
        if self._refusal is None:
            self._sink.failed(failure)
        else:
            self.end()
