import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.control.tokens import FILE_NAME, TokenFile, create_tokens, load_tokens
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.downstream import ControlSettings
from tests.unit.adapters.control.conftest import OVERRIDE, Serve, Served

WRITE = "write-token-3f9c0d5be1a7482c"
READ = "read-token-77aa01c4e9d24b6f"
PAGE = "https://console.example"
WISH = {"kind": "pin", "tool": "docs/read"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(
        TokenFile(tmp_path_factory.mktemp("guarded") / FILE_NAME),
        token=WRITE,
        read_token=READ,
        allowed_origins=[PAGE],
        allowed_hosts=["riglm.example"],
    )
    served.fill()
    yield served
    served.end()


def bearer(token: str) -> str:
    return f"Bearer {token}"


REFUSALS: dict[str, tuple[dict[str, str | None], int]] = {
    "no token": ({}, 401),
    "a wrong token": ({"authorization": bearer("wrong")}, 401),
    "another scheme": ({"authorization": f"Basic {WRITE}"}, 401),
    "an empty token": ({"authorization": "Bearer "}, 401),
    "a token of another alphabet": ({"authorization": "Bearer \xff\xfe"}, 401),
    "the read token": ({"authorization": bearer(READ)}, 403),
    "a forged Host": ({"authorization": bearer(WRITE), "host": "evil.example"}, 421),
    "a forged Origin": ({"authorization": bearer(WRITE), "origin": "http://evil.example"}, 403),
    "a page of this machine": ({"authorization": bearer(WRITE), "origin": "http://127.0.0.1:3000"}, 403),
    "Origin: null": ({"authorization": bearer(WRITE), "origin": "null"}, 403),
}


def changed(served: Served) -> object:
    """All that a change could change."""
    return list(served.store.list_overrides()), served.proxy.configuration.version


def mutating(served: Served) -> list[tuple[str, str]]:
    """Every operation of the document that is no reading."""
    answer = served.ask("GET", "/openapi.json", authorization=bearer(READ))
    return [
        (method.upper(), path.replace("{override_id}", str(OVERRIDE)))
        for path, operations in answer.json["paths"].items()
        for method in operations
        if method.upper() not in {"GET", "HEAD"}
    ]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_no_mutating_route_lets_through_who_may_not(guarded: Served, refusal: str):
    guarded.reset()
    guarded.ask("POST", "/override", WISH, authorization=bearer(WRITE))
    before = changed(guarded)
    headers, status = REFUSALS[refusal]
    routes = mutating(guarded)
    assert {method for method, _ in routes} == {"PUT", "POST", "DELETE"}
    for method, path in routes:
        answer = guarded.ask(method, path, WISH, **headers)
        assert answer.status == status, (method, path)
        assert answer.problem
        assert ("www-authenticate" in answer.headers) == (status == 401)
        assert answer.headers.get("www-authenticate", "Bearer").startswith("Bearer")
    assert changed(guarded) == before


@pytest.mark.parametrize(
    "path", ["/health", "/metrics", "/openapi.json", "/nowhere", "/docs", "/assetsx", "//", "/assets"]
)
def test_nothing_but_the_page_itself_is_told_without_a_token(guarded: Served, path: str):
    answer = guarded.ask("GET", path)
    assert answer.status == 401
    assert answer.problem
    assert "riglm-access" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/assets/nothing.js"])
def test_the_page_loads_without_a_token_to_ask_for_one_but_only_under_its_own_name(guarded: Served, path: str):
    assert guarded.ask("GET", path).status == (200 if path == "/" else 404)
    assert guarded.ask("GET", path, host="evil.example").status == 421
    assert guarded.ask("GET", path, origin="null").status == 403
    assert guarded.ask("GET", path, authorization=bearer("wrong")).status == 401


@pytest.mark.parametrize("host", ["localhost:{}", "127.0.0.1", "[::1]:{}", "Riglm.example", "riglm.example:443"])
def test_a_request_passes_under_each_name_that_is_meant(guarded: Served, host: str):
    assert guarded.ask("GET", "/health", host=host.format(guarded.port), authorization=bearer(READ)).status == 200


def test_the_page_own_origin_and_a_named_one_pass(guarded: Served):
    for origin in (f"http://{guarded.host}", PAGE, PAGE.upper()):
        answer = guarded.ask("PUT", "/config", {}, origin=origin, authorization=bearer(WRITE))
        assert answer.status == 200, origin


def test_a_page_of_a_named_origin_may_ask_and_read(guarded: Served):
    override_request = {
        "origin": PAGE,
        "access_control_request_method": "PUT",
        "access_control_request_headers": "if-match",
    }
    may = guarded.ask("OPTIONS", "/config", **override_request)
    assert may.status == 204
    assert may.headers["access-control-allow-origin"] == PAGE
    assert "PUT" in may.headers["access-control-allow-methods"]
    answer = guarded.ask("GET", "/config", origin=PAGE, authorization=bearer(READ))
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "etag" in answer.headers["access-control-expose-headers"]
    assert guarded.ask("GET", "/config", origin=PAGE).headers["access-control-allow-origin"] == PAGE


def test_no_other_page_is_given_leave(guarded: Served):
    own = f"http://{guarded.host}"
    override_request = {"access_control_request_method": "PUT"}
    for origin, status in ((own, 401), ("http://evil.example", 403), ("null", 403)):
        answer = guarded.ask("OPTIONS", "/config", origin=origin, **override_request)
        assert answer.status == status
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("name", ["host", "origin", "authorization"])
def test_what_is_said_twice_is_not_believed(guarded: Served, name: str):
    values = {"host": guarded.host, "origin": f"http://{guarded.host}", "authorization": bearer(WRITE)}
    head = "".join(f"{each}: {value}\r\n" for each, value in [*values.items(), (name, values[name])])
    answer = guarded.raw(f"GET /health HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in {b"400", b"401", b"403", b"421"}


def test_every_answer_keeps_browsers_within_bounds(guarded: Served):
    for path in ("/", "/health", "/nowhere", "/config"):
        for headers in ({"authorization": bearer(READ)}, {"host": "evil.example"}):
            found = guarded.ask("GET", path, **headers).headers
            assert "default-src 'none'" in found["content-security-policy"]
            assert found["x-content-type-options"] == "nosniff"
            assert found["referrer-policy"] == "no-referrer"
            assert found["cache-control"] == ("no-cache" if path == "/" and "host" not in headers else "no-store")
            assert "server" not in found


def test_on_loopback_nobody_needs_a_token_but_a_given_one_must_be_right(serve: Serve):
    served = serve()
    made = create_tokens()
    served.tokens.write(made)
    assert served.ask("PUT", "/config", {}).headers["riglm-access"] == "write"
    assert served.ask("PUT", "/config", {}, authorization=bearer("wrong")).status == 401
    assert served.ask("PUT", "/config", {}, authorization=bearer(made["read"])).status == 403
    assert served.ask("PUT", "/config", {}, authorization=bearer(made["write"])).status == 200


def test_created_tokens_count_at_once_and_replaced_ones_no_more(serve: Serve):
    served = serve(read_token=READ)
    first, second = create_tokens(), create_tokens()
    token = bearer(first["write"])
    assert served.ask("GET", "/health", authorization=token).status == 401
    served.tokens.write(first)
    assert served.ask("GET", "/health", authorization=token).headers["riglm-access"] == "write"
    served.tokens.write(second)
    assert served.ask("GET", "/health", authorization=token).status == 401
    assert served.ask("GET", "/health", authorization=bearer(second["write"])).status == 200


def test_a_configured_token_stands_in_for_the_one_of_its_scope_that_was_made(serve: Serve):
    served = serve(token=WRITE)
    made = create_tokens()
    served.tokens.write(made)
    assert served.ask("GET", "/health", authorization=bearer(made["write"])).status == 401
    assert served.ask("GET", "/health", authorization=bearer(made["read"])).headers["riglm-access"] == "read"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"write": {}}', b'{"write": {"sha256": "zz"}}', b'{"write": 1}']
)
def test_a_file_that_holds_no_tokens_lets_nobody_in(serve: Serve, content: bytes):
    served = serve(read_token=READ)
    made = create_tokens()
    served.tokens.write(made)
    assert served.ask("GET", "/health", authorization=bearer(made["write"])).status == 200
    Path(served.tokens.path).write_bytes(content)
    assert served.ask("GET", "/health", authorization=bearer(made["write"])).status == 401
    assert served.ask("GET", "/health", authorization=bearer(READ)).status == 200


def test_the_document_says_whether_a_token_is_needed(guarded: Served, served: Served):
    def security(answer: Any) -> Any:
        return json.loads(answer.body)["security"]

    assert security(guarded.ask("GET", "/openapi.json", authorization=bearer(READ))) == [{"token": []}]
    assert security(served.ask("GET", "/openapi.json")) == [{}, {"token": []}]


TOKEN = "3f9c0d5be1a7482c"


def test_on_loopback_no_token_is_needed_or_created(tmp_path: Path):
    assert not load_tokens(ControlSettings(), tmp_path).required
    assert not list(tmp_path.iterdir())


def test_a_public_address_without_any_token_is_refused_with_the_fix(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="riglm control token"):
        load_tokens(ControlSettings(host="0.0.0.0"), tmp_path)
    TokenFile(tmp_path / FILE_NAME).write(create_tokens())
    assert load_tokens(ControlSettings(host="0.0.0.0"), tmp_path).required


@pytest.mark.parametrize("control", [{"token": TOKEN}, {"read_token": TOKEN}])
def test_a_public_address_with_a_configured_token_is_served(tmp_path: Path, control: dict[str, str]):
    tokens = load_tokens(ControlSettings.model_validate({"host": "0.0.0.0", **control}), tmp_path)
    assert tokens.required
    assert tokens.right(TOKEN.encode())
    assert tokens.right(b"") is None
