"""The tRPC interface of MetaMCP, as its web pages use it. All functions block; run them in a thread."""

import json
from typing import Any, Final

import httpx2

from riglm.domain.errors import RiglmError
from riglm.domain.upstream import GatewayAccount

_TIMEOUT_SECONDS: Final = 10.0
_UNAUTHORIZED: Final = 401


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
        response = self._send(method, path, **content)
        if response.status_code == _UNAUTHORIZED and had_session:
            self._sign_in()
            response = self._send(method, path, **content)
        try:
            result = response.json()["result"]["data"]
            if result["success"]:
                return dict(result)
            reason = result.get("message", "")
        except (ValueError, KeyError, TypeError, AttributeError):
            reason = f"HTTP {response.status_code}"
        raise RiglmError(f"MetaMCP refused {procedure}: {reason}")

    def _sign_in(self) -> None:
        account, self._cookie = self._account, ""
        credentials = {"email": account.email, "password": account.password}
        response = self._send("POST", "/api/auth/sign-in/email", json=credentials)
        # MetaMCP sets the cookies for the host in its APP_URL, which need not be the one that riglm uses.
        self._cookie = "; ".join(each.partition(";")[0] for each in response.headers.get_list("set-cookie"))
        if response.status_code != 200 or not self._cookie:
            is_refused = response.status_code in {400, 401, 403}
            hint = " — fix: check `metamcp.email` and `metamcp.password`" if is_refused else ""
            raise RiglmError(f"MetaMCP refused the sign-in with HTTP {response.status_code}{hint}")

    def _send(self, method: str, path: str, **content: Any) -> httpx2.Response:
        headers = {"Cookie": self._cookie} if self._cookie else {}
        try:
            return httpx2.request(
                method, self._account.url + path, headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False, **content
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise RiglmError(f"MetaMCP cannot be reached: {type(error).__name__}") from None
