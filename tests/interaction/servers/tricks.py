"""Lists of tools in forms that one reader takes for something else than another does."""

_TWICE = b'"name":"counter","name":"innocent"'
_OTHER_CASE = b'"name":"innocent","Name":"counter"'


def tricky(kind: str, reply: bytes) -> bytes:
    """The answer to a `tools/list` in the form that is named by `kind`, the same on every transport."""
    match kind:
        case "bom":
            return b"\xef\xbb\xbf" + reply
        case "batch":
            return b"[" + reply + b"]"
        case "carriage returns":
            return reply.replace(b',"tools"', b'\r,\r"tools"').replace(b'"tools":', b'"tools"\r:')
        case "name twice":
            return reply.replace(b'"name":"counter"', _TWICE)
        case "name in another case":
            return reply.replace(b'"name":"counter"', _OTHER_CASE)
        case _:
            return reply


def tricky_event(kind: str, reply: bytes) -> bytes:
    """The same as a server-sent event."""
    at = reply.index(b',"') + 1
    match kind:
        case "two data lines":
            return b"event: message\r\ndata: " + reply[:at] + b"\rdata: " + reply[at:] + b"\n\n"
        case "two messages":
            return b'data: {"jsonrpc":"2.0","method":"notifications/x"}\ndata: ' + reply + b"\n\n"
        case "bom":
            return b"\xef\xbb\xbfdata: " + reply + b"\n\n"
        case _:
            return b"event: message\ndata: " + tricky(kind, reply).replace(b"\r", b"\rdata: ") + b"\n\n"
