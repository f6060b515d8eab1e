"""Which tools a call names, however it is written."""

from riglm.application.services import tool_name
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.parameters import Parameters


def named_tools(asked: Message, given: Parameters) -> list[str]:
    """The tool that a call names; also those under `Name` and the like, since some servers do not tell them apart."""
    name = tool_name(given)
    names = [] if name is None else [name]
    for key, raw in jsonrpc.members(asked.params).items():
        if len(key) == len("name") and key != "name" and key.lower() == "name":
            other = jsonrpc.text(raw)
            if other is not None and other not in names:
                names.append(other)
    return names
