"""A tool that is in every list, regardless of what the filter shows."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from riglm.application.knowledge.definition import definition
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.tool import estimated_tokens

if TYPE_CHECKING:
    from riglm.application.filtering.meta_tools import MetaTools
    from riglm.application.knowledge.inner_voice import InnerVoice

_MAX_KEPT: Final = 16
_OF_ONE_PAGE: Final = b'"resultType":"complete","ttlMs":0,"cacheScope":"private"'  # the modern era asks for these
_log: Final = logging.getLogger("riglm.filtering")


class AlwaysListed:
    """Adds the tool's entry behind all others, and leaves out a server's entry of the same name."""

    def __init__(
        self,
        name: str,
        entry: bytes,
        on_listed: Callable[[], None] = lambda: None,
        is_denied: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`entry` is its definition as raw JSON; `on_listed` is called before it is sent in a list."""
        self.tokens: Final = estimated_tokens(len(entry))
        """About what the entry takes of a client's context."""
        self.name: Final = name
        self._entry = entry
        self._on_listed = on_listed
        self._is_denied = is_denied
        self._has_logged = False
        self._kept: OrderedDict[tuple[bytes, bool], bytes] = OrderedDict()

    @property
    def is_active(self) -> bool:
        """Whether lists have the tool: it may be denied."""
        return not self._is_denied(self.name)

    def complete(self, reply: Message) -> Message:
        """Return a page of a list with the tool, if it is the last one; so for a server that knows no tools.

        Any other reply stays as it is.
        """
        if reply.error and jsonrpc.error_code(reply) == jsonrpc.METHOD_NOT_FOUND:
            self._on_listed()
            return jsonrpc.result(reply.id or b"null", b'{"tools":[%b],%b}' % (self._entry, _OF_ONE_PAGE))
        fields = jsonrpc.members(reply.result) if reply.result else {}
        if "tools" not in fields:
            return reply
        is_last = not jsonrpc.next_cursor(fields)
        if is_last:
            self._on_listed()
        fields["tools"] = Raw(self._entries(bytes(fields["tools"]), is_last=is_last))
        return reply.replace(result=jsonrpc.join_object(fields))

    def _entries(self, tools: bytes, *, is_last: bool) -> bytes:
        key = (tools, is_last)
        kept = self._kept.get(key)
        if kept is None:
            others = [bytes(each) for each in jsonrpc.elements(tools) if not self._is_namesake(each)]
            kept = self._kept[key] = b"[%b]" % b",".join([*others, self._entry] if is_last else others)
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return kept

    def _is_namesake(self, entry: Raw) -> bool:
        if jsonrpc.text(jsonrpc.members(entry).get("name")) != self.name:
            return False
        if not self._has_logged:
            self._has_logged = True
            _log.warning(
                "an upstream's tool is called %s as well: it is reached by call_tool, or once knowledge.alias gives "
                "riglm's another name",
                self.name,
            )
        return True


def create_always_listed(voice: "InnerVoice | None", meta_tools: "MetaTools") -> AlwaysListed | None:
    """Return what lists the inner voice; None if that is disabled."""
    name = meta_tools.voice_name
    return None if voice is None else AlwaysListed(name, definition(name), voice.get_ready, meta_tools.is_denied)
