"""What an upstream's description of itself says of tools when riglm changes the list."""

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message

_PATH = ("capabilities", "tools", "listChanged")


def announcing(answer: Message) -> Message:
    """The answer to `initialize` or `server/discover`, with the word that changes of the list of tools are announced.

    An upstream without tools stays one.
    """
    tools = jsonrpc.members(jsonrpc.members(answer.result).get("capabilities", b"{}")).get("tools")
    if tools is None or bytes(jsonrpc.members(tools).get("listChanged", b"")) == b"true":
        return answer
    return answer.replace(result=jsonrpc.with_member(answer.result, _PATH, b"true"))
