"""Changed tools: listed with their difference, and approved by the digest that people looked at."""

from dataclasses import replace

import pytest

from riglm.application.control.statistics import approve_tool, list_tool_changes
from riglm.application.trust import PinnedTools
from riglm.domain.errors import ConflictError, NotFoundError
from riglm.domain.jsonrpc import Raw
from riglm.domain.schemas.control_api import ToolApproval
from riglm.domain.tool_pin import definition_digest
from tests.records import a_tool_pin
from tests.unit.application.control.parts import running_proxy
from tests.unit.application.fakes import World

OLD, NEW = b'{"name":"read","description":"Reads."}', b'{"name":"read","description":"Reads all."}'


@pytest.fixture
async def proxy():
    """A proxy whose server changed one of two tools."""
    digests = [definition_digest(Raw(each)) for each in (OLD, NEW)]
    changed = a_tool_pin(digest=digests[0], definition=OLD, seen_digest=digests[1], seen=NEW)
    parts = replace(World().parts, pins=PinnedTools({"files": "hold"}))
    parts.pins.read([changed])
    parts.pins.review("files", [Raw(NEW)])
    with running_proxy(parts=parts) as (store, proxy):
        store.record_many([changed, a_tool_pin(name="write")])
        yield proxy


async def test_an_approved_tool_may_be_called_at_once(proxy):
    [found] = (await list_tool_changes(proxy)).items
    assert (found.server, found.tool) == ("files", "read")
    assert '+  "description": "Reads all.",' in found.diff
    assert proxy.parts.pins.refusal("files", "read")
    approved = await approve_tool(proxy, ToolApproval(server="files", tool="read", digest=found.digest))
    assert approved.change is None
    assert proxy.parts.pins.refusal("files", "read") is None
    assert (await list_tool_changes(proxy)).items == []


async def test_what_was_not_looked_at_is_not_approved(proxy):
    [found] = (await list_tool_changes(proxy)).items
    with pytest.raises(ConflictError):
        await approve_tool(proxy, ToolApproval(server="files", tool="read", digest=found.approved_digest))
    for server, tool in (("files", "write"), ("files", "none"), ("none", "read")):
        with pytest.raises(NotFoundError):
            await approve_tool(proxy, ToolApproval(server=server, tool=tool, digest=found.digest))
    assert len((await list_tool_changes(proxy)).items) == 1
