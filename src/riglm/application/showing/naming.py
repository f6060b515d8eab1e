"""Which tools a call names, however it is written."""

import re
from typing import Final

from riglm.application.services import tool_name
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.parameters import Parameters

_LIKE_NAME: Final = re.compile(rb'"(?!name")[nN][aA][mM][eE]"|\\u00')


def named_tools(asked: Message, given: Parameters) -> list[str]:
    """The tool that a call names; also those under `Name` and the like, since some servers do not tell them apart."""
    name = tool_name(given)
    names = [] if name is None else [name]
    if _LIKE_NAME.search(asked.line):
        for key, raw in jsonrpc.members(asked.params).items():
            other = jsonrpc.text(raw) if key.lower() == "name" else None
            if other is not None and other not in names:
                names.append(other)
    return names
