from typing import Any

from tests.interaction import text
from tests.interaction.clients.raw import RawClient
from tests.interaction.route import CORNERS, CROSSED, DIRECT, Route, routes
from tests.interaction.servers import catalog
from tests.interaction.stage import Stage

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
REQUESTS: tuple[tuple[str, Any], ...] = (
    ("prompts/get", b'{"name":"greet","arguments":{"topic":"\\u0061","x":1.0}}'),
    ("prompts/get", {"name": "no such prompt"}),
    ("resources/read", {"uri": "note://scripted/one"}),
    ("resources/read", {"uri": "note://scripted/any thing?x=\u00e9#f"}),
    ("resources/read", {"uri": "note://nowhere/one"}),
    (
        "completion/complete",
        b'{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"topic","value":"a"},"x":1.0}',
    ),
    (
        "completion/complete",
        b'{"ref":{"type":"ref/resource","uri":"note://scripted/{id}"},"argument":{"name":"id","value":""}}',
    ),
    ("tools/list", {"cursor": "no such cursor"}),
    ("no/such/method", {"x": 1}),
)


def _straight(route: Route) -> Route:
    return Route(route.back, route.back, DIRECT, route.era)


async def pages(client: RawClient, method: str) -> list[bytes]:
    """The results of a list method, page by page."""
    found, params = [], {}
    while True:
        found.append((await client.request(method, params)).result)
        assert len(found) < 50, "the cursors never end"
        cursor = text.members(found[-1]).get("nextCursor")
        if cursor is None:
            return found
        params = {"cursor": text.value(cursor)}


@routes(CROSSED)
async def test_every_list_is_the_server_s_own(actors: Stage, route: Route):
    async with actors.client(route) as client, actors.client(_straight(route)) as witness:
        for method in LISTS:
            assert await pages(client, method) == await pages(witness, method), method


@routes(CROSSED)
async def test_cursors_lead_through_all_pages(actors: Stage, route: Route):
    async with actors.client(route, "--page-size", "5") as client:
        for method, member in LISTS.items():
            found = await pages(client, method)
            sizes = [len(text.elements(text.at_path(page, member))) for page in found]
            assert sizes == {"tools": [5, 5, 5, 3], "resourceTemplates": [1]}.get(member, [3]), method
        tools = [
            tool for page in await pages(client, "tools/list") for tool in text.elements(text.at_path(page, "tools"))
        ]
    assert tools == [catalog.tool(name) for name in catalog.NAMES]


@routes(CROSSED)
async def test_requests_are_answered_as_without_riglm(actors: Stage, route: Route):
    async with actors.client(route) as client, actors.client(_straight(route)) as witness:
        for method, params in REQUESTS:
            ours, theirs = await client.request(method, params), await witness.request(method, params)
            assert ours.parts.get("result") == theirs.parts.get("result"), (method, params)
            assert ours.parts.get("error") == theirs.parts.get("error"), (method, params)


@routes(CORNERS)
async def test_two_thousand_tools_are_listed(actors: Stage, route: Route):
    async with actors.client(route, "--many-tools", "2000", "--page-size", "700") as client:
        found = await pages(client, "tools/list")
    assert [len(text.elements(text.at_path(page, "tools"))) for page in found] == [700, 700, 618]
