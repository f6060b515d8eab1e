"""What can be recovered of a response that cannot be read as a whole."""

import re
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.salvage import EDGE, ID, ID_AT_END, VERSION

_START: Final = rb"\s*\{\s*(?:%b\s*,\s*)?(?:%b\s*,\s*)?(?:%b\s*,\s*)?" % (VERSION, ID, VERSION)
_AT_START: Final = re.compile(_START + rb'"(?:result|error)"\s*:')
_METHOD: Final = re.compile(_START + rb'"method"\s*:')


def answered_id(head: bytes, tail: bytes) -> bytes | None:
    """The key of the request that a damaged message answers, read from its first and last bytes.

    Servers write the id next to the version, either before the result or after it; an id elsewhere is not the
    message's own. None when there is none to be found, or the message is no answer.
    """
    if not_an_answer(head):
        return None
    found = _AT_START.match(head[:EDGE])
    if found is None or found[1] is None:
        found = ID_AT_END.search(tail[-EDGE:])
    return jsonrpc.id_key(found[1]) if found else None


def not_an_answer(head: bytes) -> bool:
    """Whether the first bytes of a message show that it is a request or a notification of the server."""
    return _METHOD.match(head[:EDGE]) is not None
