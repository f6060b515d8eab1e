"""What can be recovered of a request that cannot be read as a whole: too large to be kept, or nested too deeply."""

import re
from typing import Final

EDGE: Final = 512
"""Maximum number of bytes that are inspected at either end of a message."""

ID: Final = rb'"id"\s*:\s*(-?[0-9]+|"(?:[^"\\]|\\.)*")'
"""A member that is an id."""

VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
"""The member that every message has."""

ID_AT_END: Final = re.compile(rb"%b\s*(?:,\s*%b\s*)?\}\s*\Z" % (ID, VERSION))
"""The end of a message that closes with its id, or with its id and the version."""

_METHOD: Final = rb'"method"\s*:\s*"(?:[^"\\]|\\.)*"'
_START: Final = re.compile(rb"\s*\{(?:\s*(?:%b|%b|(?P<method>%b))\s*,){1,3}" % (VERSION, ID, _METHOD))


def asked_id(head: bytes, tail: bytes) -> bytes | None:
    """The raw id of a damaged request, read from its first and last bytes; None when there is none to be found.

    Clients write the id next to the version and the method, or after the params. A message that does not show its
    method at the start may be an answer, and the id in it one of the other side.
    """
    start = _START.match(head[:EDGE])
    if start is None or not start["method"]:
        return None
    if start[1]:
        return start[1]
    end = ID_AT_END.search(tail[-EDGE:])
    return end[1] if end else None
