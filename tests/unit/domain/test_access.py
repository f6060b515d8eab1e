import pytest

from riglm.domain.access import AllowedOrigins, CrossOrigin, bearer_token, is_loopback_origin, is_origin_of


@pytest.mark.parametrize(
    ("named", "origin", "is_known"),
    [
        ("https://c.example:443", "https://c.example", True),
        ("HTTP://C.example:80/", "http://c.example", True),
        ("https://c.example", "https://c.example:443", True),
        ("https://[2001:db8::1]:443", "https://[2001:db8::1]", True),
        ("https://c.example:80", "https://c.example", False),
        ("https://c.example:443", "http://c.example", False),
        ("https://c.example:8443", "https://c.example:8", False),
        ("https://c.example", "null", False),
    ],
)
def test_a_named_origin_is_that_of_browsers_which_leave_out_the_default_port(named: str, origin: str, is_known: bool):
    assert AllowedOrigins("127.0.0.1", origins=[named]).knows_origin(origin) is is_known
    headers = CrossOrigin([named], methods=b"GET", sent=b"", exposed=b"").grant({b"origin": origin.encode()})
    assert ((b"access-control-allow-origin", origin.encode()) in headers) is is_known


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8701", "[::1]:8701", "riglm.example", "x.example:2"]
)
def test_a_listener_is_reached_by_loopback_names_and_those_that_are_named(host: str):
    assert AllowedOrigins("127.0.0.1", hosts=["riglm.example", "X.example:2"]).knows_host(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "x.example:3", "127.0.0.1.evil.example", "192.0.2.1"]
)
def test_a_listener_is_not_reached_by_other_names(host: str):
    assert not AllowedOrigins("127.0.0.1", hosts=["x.example:2"]).knows_host(host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8701", "127.0.0.1:8701"),
        ("http://localhost", "localhost"),
        ("http://localhost", "localhost:80"),
        ("https://Riglm.example:443", "riglm.example"),
        ("http://[::1]:8701", "[::1]:8701"),
    ],
)
def test_a_page_has_the_origin_of_the_host_it_was_asked_of(origin: str, host: str):
    assert is_origin_of(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("null", "null"),
        ("", ""),
        ("http://", ""),
        ("file://", ""),
        ("http://127.0.0.1:3000", "127.0.0.1:8701"),
        ("http://127.0.0.1:8701/x", "127.0.0.1:8701"),
        ("http://user@127.0.0.1:8701", "127.0.0.1:8701"),
        ("ftp://127.0.0.1:8701", "127.0.0.1:8701"),
        ("http://[", "["),
    ],
)
def test_nothing_else_is_the_origin_of_that_host(origin: str, host: str):
    assert not is_origin_of(origin, host)


@pytest.mark.parametrize(
    "origin", ["null", "file://", "http://[", "ftp://localhost", "http://localhost.evil.example", "http://"]
)
def test_a_page_from_elsewhere_has_no_loopback_origin(origin: str):
    assert not is_loopback_origin(origin)


@pytest.mark.parametrize(
    ("header", "token"), [(b"Bearer a", b"a"), (b"bearer  a ", b"a"), (b"Basic a", None), (b"", None), (b"a", None)]
)
def test_a_bearer_token_is_taken_out_of_its_header(header: bytes, token: bytes | None):
    assert bearer_token(header) == token
