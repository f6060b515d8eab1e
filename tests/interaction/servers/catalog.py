"""What the scripted server offers, as the very bytes it sends.

Every definition carries vendor fields, numbers and escapes that do not survive being parsed and written again.
"""

ODD_NUMBERS = b'{"big":123456789012345678901234567890,"one":1.0,"int":1,"exp":1E2,"neg":-0.0,"tiny":1e-400}'
"""Numbers that change when they pass through a float."""

LONE_SURROGATE = b'"half \\ud83d pair"'
"""A string that no UTF-8 encoder accepts."""

_ANY_SCHEMA = b'{"type":"object","additionalProperties":true,"x-order":["b","a"],"$defs":{"a":{"$anchor":"a"}}}'

NAMES = (
    "echo",
    "verbatim",
    "nonce",
    "barrier",
    "counter",
    "slow",
    "log",
    "ask",
    "big",
    "change",
    "fail",
    "is_error",
    "die",
    "hang",
    "noise",
    "whoami",
    "http_fault",
    "notify",
)


def tool(name: str) -> bytes:
    """One tool's definition."""
    return (
        b'{"name":"%b","title":"The \\u0065cho of %b","description":"Does %b \xe2\x80\x94 as it is told",'
        b'"inputSchema":%b,"annotations":{"readOnlyHint":true,"x-hint":1.0},"_meta":{"vendor/tool":{"n":1.50}},'
        b'"vendorField":%b}'
    ) % (name.encode(), name.encode(), name.encode(), _ANY_SCHEMA, ODD_NUMBERS)


def prompt(name: str) -> bytes:
    """One prompt's definition."""
    return (
        b'{"name":"%b","description":"Prompt","arguments":[{"name":"topic","required":true,"x":1.0}],"vendorField":%b}'
        % (name.encode(), ODD_NUMBERS)
    )


def resource(uri: str) -> bytes:
    """One resource's definition."""
    return b'{"uri":"%b","name":"%b","mimeType":"text/plain","size":5,"vendorField":%b}' % (
        uri.encode(),
        uri.rpartition("/")[2].encode(),
        ODD_NUMBERS,
    )


def template(server: str) -> bytes:
    """The definition of the server's one resource template."""
    return b'{"uriTemplate":"note://%b/{id}","name":"note","vendorField":%b}' % (server.encode(), ODD_NUMBERS)


CAPABILITIES = (
    b'{"tools":{"listChanged":true},"prompts":{"listChanged":true},'
    b'"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{},'
    b'"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},'
    b'"experimental":{"vendor/thing":{"n":1.0}},"extensions":{"vendor/ext":{"v":1.0}},"x-vendor":{"big":%b}}'
    % ODD_NUMBERS
)
