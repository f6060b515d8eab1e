from tests.interaction.route import EVERY, Route, routes
from tests.interaction.stage import Stage


@routes(EVERY)
async def test_echo(company: Stage, route: Route):
    async with company.client(route) as client:
        reply = await client.call("echo", b'{"a" : 1.0}')
        assert reply.words == '{"a" : 1.0}'
