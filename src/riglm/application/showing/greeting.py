"""What an upstream's description of itself says of tools when riglm changes the list."""

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw

_PATH = ("capabilities", "tools", "listChanged")


def announcing(answer: Message) -> Message:
    """The answer to `initialize` or `server/discover`, with the word that changes of the list of tools are announced.

    An upstream without tools stays one.
    """
    if _tools(answer) is None or has_announced(answer):
        return answer
    return answer.replace(result=jsonrpc.with_member(answer.result, _PATH, b"true"))


def offering(answer: Message) -> Message:
    """The answer with the word that there are tools: where riglm has one for every list, there is always one."""
    if not answer.result or "capabilities" not in jsonrpc.members(answer.result) or _tools(answer) is not None:
        return answer
    return answer.replace(result=jsonrpc.with_member(answer.result, _PATH[:-1], b"{}"))


def has_announced(answer: Message) -> bool:
    """Whether an answer says that changes of the list of tools are announced."""
    tools = _tools(answer)
    return tools is not None and bytes(jsonrpc.members(tools).get("listChanged", b"")) == b"true"


def _tools(answer: Message) -> Raw | None:
    return jsonrpc.members(jsonrpc.members(answer.result).get("capabilities", b"{}")).get("tools")
