"""The tRPC interface of MetaMCP, as its web pages use it. All functions block; run them in a thread."""

import asyncio
import json
from typing import Any, Final

import httpx2

from riglm.domain.errors import RiglmError
from riglm.domain.upstream import GatewayAccount

_TIMEOUT_SECONDS: Final = 10.0
_MAX_RESPONSE_BYTES: Final = 32 * 2**20
_MAX_REASON: Final = 200
_UNAUTHORIZED: Final = 401
_REFUSALS: Final = frozenset({400, _UNAUTHORIZED, 403})
_URL: Final = "that `url` is that of an endpoint of MetaMCP, without redirects"


class MetaMcpApi:
    """Calls procedures with the session of an account, and signs in when that is missing or has expired."""

    def __init__(self, account: GatewayAccount) -> None:
        """Nothing is sent before the first call."""
        self._account = account
        self._cookie = ""

    def query(self, procedure: str, values: dict[str, Any] | None = None) -> Any:
        """Return the data of a query such as `namespaces.get`.

        Raises:
            RiglmError: MetaMCP cannot be reached, or refuses.
        """
        return self._call("GET", procedure, params={"input": json.dumps(values)} if values else None).get("data")

    def mutate(self, procedure: str, values: dict[str, Any]) -> None:
        """Make a change.

        Raises:
            RiglmError: MetaMCP cannot be reached, or refuses.
        """
        self._call("POST", procedure, json=values)

    def _call(self, method: str, procedure: str, **content: Any) -> dict[str, Any]:
        path, had_session = f"/trpc/frontend.{procedure}", bool(self._cookie)
        if not had_session:
            self._sign_in()
        status, body, _ = self._send(method, path, **content)
        if status == _UNAUTHORIZED and had_session:
            self._sign_in()
            status, body, _ = self._send(method, path, **content)
        try:
            result = json.loads(body)["result"]["data"]
            if result["success"]:
                return dict(result)
            reason = f"refused {procedure}: {str(result.get('message', ''))[:_MAX_REASON]}"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            reason = f"answered {procedure} with HTTP {status} and {len(body)} bytes that are no result"
        raise RiglmError(f"MetaMCP {reason}")

    def _sign_in(self) -> None:
        account, self._cookie = self._account, ""
        credentials = {"email": account.email, "password": account.password}
        status, _, cookies = self._send("POST", "/api/auth/sign-in/email", json=credentials)
        # MetaMCP sets the cookies for the host in its APP_URL, which need not be the one that riglm uses.
        self._cookie = "; ".join(each.partition(";")[0] for each in cookies)
        if status != 200 or not self._cookie:
            checked = "`metamcp.email` and `metamcp.password`" if status in _REFUSALS else _URL
            raise RiglmError(f"MetaMCP refused the sign-in with HTTP {status} — fix: check {checked}")

    def _send(self, method: str, path: str, **content: Any) -> tuple[int, bytes, list[str]]:
        """Return the status, the body and the cookies of the response. Redirects are not followed."""
        headers = {"Accept-Encoding": "identity"} | ({"Cookie": self._cookie} if self._cookie else {})

        async def respond() -> tuple[int, bytes, list[str]]:
            body = bytearray()
            async with (
                asyncio.timeout(_TIMEOUT_SECONDS),  # httpx2 limits only the time between two chunks
                httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as http,
                http.stream(method, self._account.url + path, headers=headers, **content) as response,
            ):
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > _MAX_RESPONSE_BYTES:
                        raise RiglmError(f"MetaMCP sent a response of more than {_MAX_RESPONSE_BYTES} bytes")
            return response.status_code, bytes(body), response.headers.get_list("set-cookie")

        try:
            return asyncio.run(respond())
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, TimeoutError) as error:
            reason = f"MetaMCP cannot be reached at {self._account.url}: {type(error).__name__}"
            raise RiglmError(f"{reason} — fix: start it, or check {_URL}") from None
