"""A tool of riglm's own that is in every list, whatever else is shown."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.tokens import estimated_tokens

_MOST_KEPT: Final = 16
_OF_ONE_PAGE: Final = b'"resultType":"complete","ttlMs":0,"cacheScope":"private"'  # the modern era asks for these
_log: Final = logging.getLogger("riglm.filtering")


class AlwaysListed:
    """Adds the tool's entry behind all others, and leaves out an upstream's entry of the same name."""

    def __init__(self, name: str, entry: bytes, when_listed: Callable[[], None] = lambda: None) -> None:
        """`entry` is its definition as raw JSON; `when_listed` is called whenever a client is about to hear of it."""
        self.tokens: Final = estimated_tokens(len(entry))
        """About what the entry takes of a client's context."""
        self.name: Final = name
        self._entry = entry
        self._when_listed = when_listed
        self._is_told = False
        self._kept: OrderedDict[tuple[bytes, bool], bytes] = OrderedDict()

    def completed(self, answer: Message) -> Message:
        """One page of a list; the last one has the tool, and so has the answer of an upstream that knows no tools.

        Any other answer stays as it is.
        """
        if answer.error and jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND:
            self._when_listed()
            return jsonrpc.result(answer.id or b"null", b'{"tools":[%b],%b}' % (self._entry, _OF_ONE_PAGE))
        fields = jsonrpc.members(answer.result) if answer.result else {}
        if "tools" not in fields:
            return answer
        is_last = not jsonrpc.next_cursor(fields)
        if is_last:
            self._when_listed()
        fields["tools"] = Raw(self._entries(bytes(fields["tools"]), is_last=is_last))
        return answer.replace(result=jsonrpc.join_object(fields))

    def _entries(self, tools: bytes, *, is_last: bool) -> bytes:
        key = (tools, is_last)
        kept = self._kept.get(key)
        if kept is None:
            others = [bytes(each) for each in jsonrpc.elements(tools) if not self._is_namesake(each)]
            kept = self._kept[key] = b"[%b]" % b",".join([*others, self._entry] if is_last else others)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return kept

    def _is_namesake(self, entry: Raw) -> bool:
        if jsonrpc.text(jsonrpc.members(entry).get("name")) != self.name:
            return False
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "an upstream's tool is called %s as well: it is reached by call_tool, or once knowledge.alias gives "
                "riglm's another name",
                self.name,
            )
        return True
