import pytest

from riglm.adapters.mcp.wire.exchange import HttpHeaders
from riglm.adapters.mcp.wire.http_client import find_redirect
from riglm.adapters.mcp.wire.target import Target, proxy_for
from riglm.domain.errors import ConfigurationError


def head(line: str, host: str) -> bytes:
    return f" {line} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n".encode()


@pytest.mark.parametrize(
    ("url", "origin", "path", "host"),
    [
        ("http://example.com", "http://example.com:80", "/", "example.com"),
        ("http://Example.COM:80/mcp", "http://example.com:80", "/mcp", "example.com"),
        ("https://example.com/mcp/", "https://example.com:443", "/mcp/", "example.com"),
        ("https://example.com:8443/a?b=c&d=/", "https://example.com:8443", "/a?b=c&d=/", "example.com:8443"),
        ("http://example.com?x", "http://example.com:80", "/?x", "example.com"),
        ("http://example.com/a#fragment", "http://example.com:80", "/a", "example.com"),
        ("http://[::1]:8000/", "http://[::1]:8000", "/", "[::1]:8000"),
        ("HTTP://127.0.0.1/", "http://127.0.0.1:80", "/", "127.0.0.1"),
        (
            "http://bücher.example/é?ü=%20",
            "http://xn--bcher-kva.example:80",
            "/%C3%A9?%C3%BC=%20",
            "xn--bcher-kva.example",
        ),
        ('http://example.com/"<>', "http://example.com:80", "/%22%3C%3E", "example.com"),
    ],
)
def test_a_url_becomes_the_head_of_its_requests(url: str, origin: str, path: str, host: str) -> None:
    target = Target(url)
    assert target.origin == origin
    assert target.origin_form == head(path, host)
    assert target.absolute_form == head(f"{origin.split(':', maxsplit=1)[0]}://{host}{path}", host)
    assert target.authorization == b""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com/",
        "file:///etc/passwd",
        "ws://example.com/",
        "http:///path",
        "http://:80/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://[::1/",
        "http://exa mple.com/",
        "http://example.com/\r\nX: y",
        "http://example.com/\x00",
        "http://" + "a" * 64 + "ü.example/",
        "http://" + "a" * 64 + ".example/",
        "http://a..example/",
        "http://user:pass@\u2100.example/",
    ],
)
def test_a_url_that_names_no_http_server_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Target(url)
    assert "URL" in str(caught.value)
    assert not url or url not in str(caught.value)
    assert "pass" not in str(caught.value)
    assert caught.value.__cause__ is None or "pass" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("userinfo", "encoded"),
    [("me:secret", "bWU6c2VjcmV0"), ("me", "bWU6"), (":secret", "OnNlY3JldA=="), ("m%40e:s%3Aé", "bUBlOnM6w6k=")],
)
def test_credentials_become_a_header_and_are_not_printed(userinfo: str, encoded: str) -> None:
    target = Target(f"https://{userinfo}@example.com/mcp?key=planted")
    assert target.authorization == f"Authorization: Basic {encoded}\r\n".encode()
    assert str(target) == "https://example.com/mcp?…"
    assert repr(target) == "Target('https://example.com/mcp?…')"
    assert b"secret" not in target.origin_form + target.absolute_form
    assert target.origin == "https://example.com:443"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "[::1]", "localhost", "a.localhost")),
        *((host, False) for host in ("10.0.0.1", "localhost.example", "notlocalhost", "[fe80::1]")),
    ],
)
def test_loopback_is_known_by_name_and_by_address(host: str, loopback: bool) -> None:
    assert Target(f"http://{host}:1/").loopback is loopback


PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("http://a.example/", {}, None),
        ("http://a.example/", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://a.example/", {"HTTPS_PROXY": PROXY}, None),
        ("https://a.example/", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://a.example/", {"HTTP_PROXY": PROXY}, None),
        ("https://a.example/", {"ALL_PROXY": "proxy.example:3128"}, PROXY),
        ("http://a.example/", {"http_proxy": PROXY, "HTTP_PROXY": "http://other:1"}, PROXY),
        ("http://a.example/", {"http_proxy": " ", "HTTP_PROXY": PROXY}, None),
        ("http://127.0.0.1/", {"HTTP_PROXY": PROXY}, None),
        ("http://localhost/", {"HTTP_PROXY": PROXY}, None),
        ("http://a.example/", {"HTTP_PROXY": PROXY, "NO_PROXY": "*"}, None),
        ("http://a.example/", {"HTTP_PROXY": PROXY, "NO_PROXY": "b.example, a.example"}, None),
        ("http://a.example/", {"HTTP_PROXY": PROXY, "no_proxy": ".EXAMPLE"}, None),
        ("http://a.example/", {"HTTP_PROXY": PROXY, "no_proxy": "*.example"}, None),
        ("http://aexample/", {"HTTP_PROXY": PROXY, "no_proxy": "example,,"}, PROXY),
        ("http://a.example/", {"HTTP_PROXY": PROXY, "no_proxy": "a.example:80"}, None),
        ("http://a.example/", {"HTTP_PROXY": PROXY, "no_proxy": "a.example:81"}, PROXY),
        ("http://10.1.2.3/", {"HTTP_PROXY": PROXY, "no_proxy": "10.0.0.0/8"}, None),
        ("http://11.1.2.3/", {"HTTP_PROXY": PROXY, "no_proxy": "10.0.0.0/8"}, PROXY),
        ("http://11.1.2.3/", {"HTTP_PROXY": PROXY, "no_proxy": "11.1.2.3/bad"}, PROXY),
        ("http://a.example/", {"HTTP_PROXY": PROXY, "no_proxy": "10.0.0.0/8"}, PROXY),
        ("http://[fe80::1]/", {"HTTP_PROXY": PROXY, "no_proxy": "fe80::1"}, None),
        ("http://[fe80::1]/", {"HTTP_PROXY": PROXY, "no_proxy": "[fe80::1]:80"}, None),
    ],
)
def test_the_environment_says_which_way_a_request_goes(
    url: str, environment: dict[str, str], proxy: str | None
) -> None:
    found = proxy_for(Target(url), environment)
    assert (found.origin if found else None) == proxy


@pytest.mark.parametrize("url", ["socks5://proxy:1080", "https://proxy:3128", "http://", "http://a b"])
def test_a_proxy_that_cannot_be_used_is_an_error_that_names_the_variable(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^HTTPS_PROXY "):
        proxy_for(Target("https://a.example/"), {"HTTPS_PROXY": url})


@pytest.mark.parametrize(
    ("url", "location", "found"),
    [
        ("http://a.test/mcp", "/mcp/", "http://a.test/mcp/"),
        ("http://a.test/x/mcp", "y", "http://a.test/x/y"),
        ("http://a.test/mcp?k=1", "?k=2", "http://a.test/mcp?…"),
        ("http://a.test/mcp", "//A.test:80/b", "http://a.test/b"),
        ("https://a.test/mcp", "https://a.test:443/b#part", "https://a.test/b"),
        ("https://a.test:443/mcp", "//a.test/b", "https://a.test/b"),
        ("http://u:p@a.test/mcp", "http://x:y@a.test/b", "http://a.test/b"),
        ("http://a.test/mcp", "/é", "http://a.test/%C3%A9"),
    ],
)
def test_a_redirect_is_followed_within_the_origin(url: str, location: str, found: str) -> None:
    target, _ = find_redirect(Target(url), b"POST", 307, HttpHeaders([(b"location", location.encode())]))
    assert str(target) == found
    assert target is not None
    assert target.authorization == Target(url).authorization


@pytest.mark.parametrize(
    ("url", "location", "words"),
    [
        ("https://a.test/mcp", "http://a.test/mcp/", "http://a.test/mcp/, which is not encrypted"),
        ("https://a.test/mcp", "http://b.test/", "which is not encrypted"),
        ("http://a.test/mcp", "https://a.test/mcp", "https://a.test/mcp, which is another origin"),
        ("http://a.test/mcp", "//a.test:81/mcp", "which is another origin"),
        ("http://a.test/mcp", "http://b.test/?key=1", "http://b.test/?…, which is another origin"),
        ("http://a.test/mcp", "ftp://a.test/", "no URL"),
        ("http://a.test/mcp", "/a b", "no URL"),
        ("http://a.test/mcp", "", ""),
    ],
)
def test_a_redirect_elsewhere_is_refused(url: str, location: str, words: str) -> None:
    target, found = find_redirect(Target(url), b"GET", 302, HttpHeaders([(b"location", location.encode())]))
    assert target is None
    assert words in found


@pytest.mark.parametrize(
    ("method", "followed"),
    [(b"GET", {301, 302, 303, 307, 308}), (b"POST", {307, 308}), (b"DELETE", {301, 302, 307, 308})],
)
def test_a_redirect_never_changes_the_method(method: bytes, followed: set[int]) -> None:
    headers = HttpHeaders([(b"location", b"/b")])
    found = {status: find_redirect(Target("http://a.test/"), method, status, headers) for status in range(300, 309)}
    assert {status for status, (target, _) in found.items() if target is not None} == followed
    assert {status for status, (_, words) in found.items() if words} == {301, 302, 303, 307, 308}
