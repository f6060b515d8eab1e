"""Sign-in and refresh in this process, at authorization servers that differ in what standards leave open."""

import asyncio
import json
import socket
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from riglm.adapters.mcp.oauth.accounts import Account, AccountFile
from riglm.adapters.mcp.oauth.sign_in import Redirect, sign_in
from riglm.adapters.mcp.oauth.token_requests import current_account, revoke
from riglm.adapters.mcp.oauth.unattended import obtain_tokens
from riglm.container import Container
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import IdentityProvider, OAuthClient, UpstreamSpec
from tests.integration.oauth import serving

GRANTED = {"access_token": "access", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "refresh"}


class Site(SimpleNamespace):
    """An MCP server with an authorization server; `respond` answers token requests, `asked` are those that came."""

    def app(self):
        paths = [
            ("/.well-known/oauth-protected-resource/mcp", self._resource),
            ("/.well-known/oauth-authorization-server", self._metadata),
            ("/register", self._register),
            ("/token", self._token),
            ("/moved", self._token),
            ("/revoke", self._token),
            ("/mcp", self._mcp),
            ("/mcp/", self._mcp),
        ]
        return Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path, answer in paths])

    async def _resource(self, _: Request):
        servers = self.named if isinstance(self.named, list) else [self.named or self.url]
        return JSONResponse({"resource": f"{self.url}/mcp", "authorization_servers": servers})

    async def _metadata(self, _: Request):
        endpoints = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in self.paths.items()}
        usual = {"issuer": self.url, "code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
        return JSONResponse({**endpoints, **usual, **self.metadata})

    async def _register(self, request: Request):
        if self.moved == "registration":
            return RedirectResponse("/moved", 307)
        return JSONResponse({"client_id": "riglm", **await request.json()}, 201)

    async def _token(self, request: Request):
        self.asked.append((request.url.path, dict(request.headers), dict(await request.form())))
        return self.respond(request)

    async def _mcp(self, request: Request):
        if self.is_at_slash and request.url.path == "/mcp":
            return RedirectResponse("/mcp/", 308)
        if "authorization" in request.headers:
            return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})
        challenge = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
        return Response(status_code=401, headers={"www-authenticate": challenge})

    def spec(self, **client):
        return UpstreamSpec(name="notes", kind="http", url=f"{self.url}/mcp", oauth=OAuthClient(**client))

    async def sign_in(self, iss=None, known=None, confirm=lambda _: False, **client) -> Account:
        """Sign in as a user who agrees; the redirect has `iss`."""
        redirect = Redirect()

        def agree(url):
            state = parse_qs(urlsplit(url).query)["state"][0]
            values = {"code": "code", "state": state, **({} if iss is None else {"iss": iss.format(url=self.url)})}
            assert redirect.accept(f"{redirect.uri}?{urlencode(values)}") == ""

        async with await redirect.listen(0):
            return await sign_in(self.spec(**client), redirect, agree, confirm, (), known)


@contextmanager
def opened():
    listener = socket.create_server(("127.0.0.1", 0))
    paths = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}
    site = Site(
        url=f"http://127.0.0.1:{listener.getsockname()[1]}", named="", metadata={}, paths=paths, asked=[], moved=""
    )
    site.respond, site.is_at_slash = lambda _: JSONResponse(GRANTED), False
    with serving(site.app(), listener):
        yield site


@pytest.fixture
def site():
    with opened() as found:
        yield found


@pytest.fixture
def accounts(tmp_path, monkeypatch) -> AccountFile:
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    return Container().account_file()


@pytest.mark.parametrize(
    ("named", "issuer", "iss", "configured"),
    [
        ("{url}/", "{url}", None, ""),
        ("{url}", "{url}/", None, ""),
        ("{url}/", "{url}", "{url}/", ""),
        ("{url}/", "{url}/", "{url}", "{url}"),
        ("{url}", "{url}", None, "{url}/"),
    ],
)
async def test_an_issuer_is_known_by_both_spellings_of_an_empty_path(site, named, issuer, iss, configured):
    site.named, site.metadata = named.format(url=site.url), {"issuer": issuer.format(url=site.url)}
    client = {"id": "riglm", "issuer": configured.format(url=site.url)} if configured else {}
    assert (await site.sign_in(iss, **client)).issuer == issuer.format(url=site.url)


@pytest.mark.parametrize(
    ("named", "issuer", "iss", "configured"),
    [
        ("{url}", "{url}//", None, ""),
        ("{url}", "{url}/tenant", None, ""),
        ("{url}", "{url}", "{url}/tenant", ""),
        ("{url}", "{url}", "{url}/", ""),
        ("{url}", "{url}", "{url}//", ""),
        ("{url}", "{url}", None, "{url}/tenant"),
    ],
)
async def test_any_other_difference_of_issuers_is_an_error(site, named, issuer, iss, configured):
    site.named, site.metadata = named.format(url=site.url), {"issuer": issuer.format(url=site.url)}
    client = {"id": "riglm", "issuer": configured.format(url=site.url)} if configured else {}
    with pytest.raises(RiglmError, match=r"mismatch|auth\.issuer"):
        await site.sign_in(iss, **client)
    assert not site.asked


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (JSONResponse({"access_token": "jag", "token_type": "N_A", "issued_token_type": "id-jag"}), None),
        (JSONResponse({"error": "invalid_grant", "error_description": "It has expired."}, 400), "It has expired"),
        (Response("access_token=jag", media_type="application/x-www-form-urlencoded"), "not with a JSON object"),
        (RedirectResponse("/moved", 307), "redirects /token to .*identity_provider.token_endpoint"),
    ],
)
async def test_the_answer_of_an_identity_provider_is_read_like_that_of_other_token_endpoints(
    site, tmp_path, answer, problem
):
    answers, file = [answer, JSONResponse(GRANTED)], tmp_path / "id-token"
    file.write_text("id-token")
    site.respond = lambda _: answers.pop(0)
    provider = IdentityProvider(token_endpoint=f"{site.url}/token", client_id="i", id_token_file=str(file))
    client = {"grant_type": "identity_assertion", "id": "c", "secret": "s", "issuer": f"{site.url}/"}
    granting = obtain_tokens(site.spec(**client, identity_provider=provider))
    if problem is None:
        assert (await granting).access_token == "access"
        assert [form["grant_type"].rpartition(":")[2] for *_, form in site.asked] == ["token-exchange", "jwt-bearer"]
    else:
        with pytest.raises(RiglmError, match=problem):
            await granting
        assert [path for path, *_ in site.asked] == ["/token"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"expires_in": 3599.9}, ("refresh", "", True)),
        ({"expires_in": "3600"}, ("refresh", "", True)),
        ({"expires_in": 0.4}, ("refresh", "", True)),
        ({"expires_in": 10**400}, ("refresh", "", False)),
        ({"expires_in": 1e300, "scope": ["a", "b"]}, ("refresh", "a b", False)),
        ({"expires_in": None, "scope": None, "refresh_token": None}, ("", "", False)),
        ({"refresh_token": 12345678901234567890}, ("12345678901234567890", "", True)),
        ({"scope": ["a", "\x07"]}, ("refresh", "", True)),
        ({"token_type": "user", "more": {"deep": [[]]}}, ("refresh", "", True)),
    ],
)
@pytest.mark.parametrize("grant", ["sign-in", "refresh", "client credentials"])
async def test_unusual_token_responses_are_read_alike(site, accounts, grant, members, expected):
    answers = [GRANTED, {**GRANTED, **members}] if grant == "refresh" else [{**GRANTED, **members}]
    site.respond = lambda _: JSONResponse(answers.pop(0))
    if grant == "client credentials":
        client = {"grant_type": "client_credentials", "id": "c", "secret": "s", "issuer": site.url}
        account = await obtain_tokens(site.spec(**client))
    else:
        account = await site.sign_in()
    if grant == "refresh":
        accounts.save(account)
        account = await asyncio.to_thread(current_account, accounts, site.spec(), "access")
    refresh_token, scope, expires = expected
    assert account.refresh_token == ("" if grant == "client credentials" else refresh_token or _kept(grant))
    assert (account.scope, account.expires_at is not None) == (scope, expires)
    assert {headers["accept"] for _, headers, _ in site.asked} == {"application/json"}


def _kept(grant):
    return "refresh" if grant == "refresh" else ""


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Response(urlencode(GRANTED), media_type="application/x-www-form-urlencoded"), "application/x-www-form-url"),
        (Response("<html>", media_type="text/html"), "with text/html, and not with a JSON object"),
        (Response("[" * 100_000, media_type="application/json"), "application/json that is invalid, too deeply"),
        (JSONResponse({**GRANTED, "access_token": "a\nhidden"}), "^(?!.*hidden).*characters that RFC 6749"),
        (JSONResponse({**GRANTED, "access_token": "ä-hidden"}), "^(?!.*hidden).*characters that RFC 6749"),
        (JSONResponse({**GRANTED, "refresh_token": "\x7fhidden"}), "^(?!.*hidden).*characters that RFC 6749"),
        (Response(json.dumps({**GRANTED, "refresh_token": "\ud800"}), media_type="application/json"), "RFC 6749"),
        (Response('{"error":' * 100_000, 400), "answered HTTP 400"),
        (Response(b"\xff\xfe\xff", 500), "answered HTTP 500"),
        (JSONResponse({"error": "bad_code", "error_description": "It is used."}), "HTTP 200: bad_code: It is used."),
        (JSONResponse({**GRANTED, "token_type": "DPoP"}), "of the type dpop"),
        (JSONResponse({}), "without a token"),
    ],
)
async def test_a_response_without_usable_tokens_is_an_error_with_its_reason(site, accounts, answer, problem):
    account = await site.sign_in()
    site.respond = lambda _: answer
    with pytest.raises(RiglmError, match=problem) as found:
        await site.sign_in()
    assert "refresh" not in str(found.value)
    accounts.save(account)
    with pytest.raises(RiglmError, match=problem):
        await asyncio.to_thread(current_account, accounts, site.spec(), "access")
    client = {"grant_type": "client_credentials", "id": "c", "secret": "s", "issuer": site.url}
    with pytest.raises(RiglmError, match=problem):
        await obtain_tokens(site.spec(**client))


@pytest.mark.parametrize(
    ("status", "body", "names_command"),
    [
        (400, {"error": "invalid_request"}, True),
        (401, {"error": "expired_token"}, True),
        (403, {}, True),
        (404, {}, True),
        (200, {"error": "token_revoked"}, True),
        (200, {}, True),
        (200, {**GRANTED, "token_type": "DPoP"}, True),
        (500, {"error": "invalid_grant"}, False),
        (400, {"error": "temporarily_unavailable"}, False),
        (429, {}, False),
        (503, {}, False),
    ],
)
async def test_a_dead_refresh_token_names_the_command(site, accounts, status, body, names_command):
    account = await site.sign_in()
    accounts.save(account)
    site.respond = lambda _: JSONResponse(body, status)
    with pytest.raises(RiglmError) as found:
        await asyncio.to_thread(current_account, accounts, site.spec(), "access")
    assert ("fix: run `riglm login notes`" in str(found.value)) is names_command
    assert accounts.find(account.key).refresh_token == "refresh"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_requests_with_a_secret_or_a_code_are_not_redirected(site, accounts, status):
    account = await site.sign_in()
    site.asked.clear()
    site.respond = lambda _: RedirectResponse("/moved?x=1", status)
    problem = rf"redirects /\w+ to {site.url}/moved, and riglm sends no secrets there — fix: "
    with pytest.raises(RiglmError, match=problem):
        await site.sign_in()
    accounts.save(account)
    with pytest.raises(RiglmError, match=f"{problem}run `riglm login notes`"):
        await asyncio.to_thread(current_account, accounts, site.spec(), "access")
    assert f"redirects /revoke to {site.url}/moved" in await asyncio.to_thread(revoke, account)
    site.moved = "registration"
    with pytest.raises(RiglmError, match="redirects /register"):
        await site.sign_in()
    assert [path for path, *_ in site.asked] == ["/token", "/token", "/revoke"]


async def test_the_server_itself_may_redirect_within_its_origin(site):
    site.is_at_slash = True
    assert (await site.sign_in()).access_token == "access"


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_an_authorization_server_without_s256_is_refused(site, methods):
    site.metadata = {"code_challenge_methods_supported": methods}
    with pytest.raises(RiglmError, match=r"PKCE with S256.* — fix: "):
        await site.sign_in()
    assert not site.asked


async def test_a_client_secret_goes_only_to_an_issuer_that_was_configured_or_confirmed(site, accounts):
    questions = []
    client = {"id": "c", "secret": "s3cret"}
    with pytest.raises(RiglmError, match=r"the client secret was not sent to .*fix: set `auth.issuer`"):
        await site.sign_in(**client)
    assert not site.asked
    account = await site.sign_in(confirm=lambda issuer: bool(questions.append(issuer)) or True, **client)
    assert questions == [site.url]
    again = await site.sign_in(known=account, **client)
    assert again.client_secret == "s3cret"
    with opened() as other:
        site.named, site.metadata = other.url, {}
        site.asked.clear()
        with pytest.raises(RiglmError, match="now uses the authorization server"):
            await site.sign_in(known=account, **client)
        assert not other.asked
    assert not site.asked


@pytest.mark.parametrize(
    ("stored_secret", "issuer", "is_sent"),
    [("old", "", True), ("", "", False), ("", "{url}", True), ("old", "https://elsewhere.example", False)],
)
async def test_a_refresh_sends_a_newer_secret_only_to_its_issuer(site, accounts, stored_secret, issuer, is_sent):
    account = await site.sign_in(id="c", issuer=site.url)
    accounts.save(replace(account, client_secret=stored_secret, auth_method="client_secret_post"))
    spec = site.spec(id="c", secret="newer", issuer=issuer.format(url=site.url))
    await asyncio.to_thread(current_account, accounts, spec, "access")
    _, _, form = site.asked[-1]
    assert form.get("client_secret") == ("newer" if is_sent else stored_secret or None)
    assert json.dumps(form).count("newer") == is_sent
