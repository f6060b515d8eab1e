"""Changed tools: listed with their difference, and approved by the digest that people looked at."""

import pytest

from riglm.application.control.tool_changes import ToolChangeService
from riglm.application.trust.pinned_tools import PinnedTools
from riglm.domain.control import ConflictError, NotFoundError
from riglm.domain.jsonrpc import Raw
from riglm.domain.tool_pin import definition_digest
from tests.records import a_tool_pin
from tests.unit.application.control.office import an_office

OLD, NEW = b'{"name":"read","description":"Reads."}', b'{"name":"read","description":"Reads all."}'


@pytest.fixture
async def office():
    with an_office() as made:
        yield made


@pytest.fixture
async def pins(office):
    digests = [definition_digest(Raw(each)) for each in (OLD, NEW)]
    changed = a_tool_pin(digest=digests[0], definition=OLD, seen_digest=digests[1], seen=NEW)
    office.archive.record_many([changed, a_tool_pin(name="write")])
    pins = PinnedTools({"files": "hold"})
    pins.read([changed])
    pins.review("files", [Raw(NEW)])
    return pins


async def test_an_approved_tool_may_be_called_at_once(office, pins):
    service = ToolChangeService(office.proxy, office.store, pins)
    [found] = (await service.entries()).items
    assert (found.server, found.tool) == ("files", "read")
    assert '+  "description": "Reads all.",' in found.diff
    assert pins.refusal("files", "read")
    approved = await service.approve("files", "read", found.digest)
    assert approved.change is None
    assert pins.refusal("files", "read") is None
    assert (await service.entries()).items == []


async def test_what_was_not_looked_at_is_not_approved(office, pins):
    service = ToolChangeService(office.proxy, office.store, pins)
    [found] = (await service.entries()).items
    with pytest.raises(ConflictError):
        await service.approve("files", "read", found.approved_digest)
    for server, tool in (("files", "write"), ("files", "none"), ("none", "read")):
        with pytest.raises(NotFoundError):
            await service.approve(server, tool, found.digest)
    assert len((await service.entries()).items) == 1
