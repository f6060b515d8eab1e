"""Names that collide are an error before the first client comes."""

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.errors import ConfigurationError
from tests.unit.application.fakes import Server, World, asks, listed, opened, tools


def server(name, *names, prompts=()):
    answers = {"initialize": opened("tools", "prompts"), "tools/list": tools(*names)}
    return Server(name, {**answers, "prompts/list": listed("prompts", "name", *prompts)})


async def test_two_servers_that_claim_one_name_are_both_named(caplog):
    one, other = server("a", "t", "u", prompts=("p",)), server("b", "u", prompts=("p",))
    with pytest.raises(ConfigurationError) as caught:
        await ProxyService(World().parts, (one, other), "none", is_alone=False).check_names()
    assert str(caught.value) == (
        "naming: 'u' is a tool of 'a' and of 'b'; 'p' is a prompt of 'a' and of 'b': "
        "use `naming: prefix` or `naming: on_collision`"
    )
    assert [each.link.closed for each in (one, other)] == [1, 1]
    assert caplog.messages == []


async def test_only_a_few_of_many_collisions_are_told():
    names = [f"t{number}" for number in range(7)]
    with pytest.raises(ConfigurationError, match=r"'t4' is a tool of 'a' and of 'b', and 2 more: use"):
        await ProxyService(
            World().parts, (server("a", *names), server("b", *names)), "none", is_alone=False
        ).check_names()


async def test_names_that_differ_are_fine():
    servers = (server("a", "t"), server("b", "u"))
    await ProxyService(World().parts, servers, "none", is_alone=False).check_names()
    for each in servers:
        each.link.says(b'{"jsonrpc":"2.0","method":"notifications/message"}')
        assert each.link.closed == 1


@pytest.mark.parametrize(("method", "code"), [("ping", None), ("roots/list", -32601), ("elicitation/create", -32601)])
@pytest.mark.parametrize("own", ["initialize", "tools/list", "prompts/list"])
async def test_a_server_that_asks_before_the_first_client_is_answered_by_riglm(own, method, code):
    curious, said = server("a", "t"), []
    result = curious.answers[own]

    def asking(asked):
        asked.says(asks(5, method).line)
        said.append(jsonrpc.decode(curious.link.sent[-1]))
        asked.result(result)

    curious.answers[own] = asking
    with pytest.raises(ConfigurationError, match="'t' is a tool of 'a' and of 'b'"):
        await ProxyService(World().parts, (curious, server("b", "t")), "none", is_alone=False).check_names()
    assert [(answer.id, jsonrpc.error_code(answer)) for answer in said] == [(b"5", code)]


@pytest.mark.parametrize(("naming", "count"), [("prefix", 2), ("on_collision", 2), ("none", 1)])
async def test_nobody_is_asked_where_no_names_can_collide(naming, count):
    servers = (server("a", "t"), server("b", "t"))[:count]
    await ProxyService(World().parts, servers, naming, is_alone=False).check_names()
    assert [each.link for each in servers] == [None] * count


async def test_servers_that_are_slow_or_down_do_not_hold_up_the_start(caplog):
    down, slow = server("c"), server("d")
    down.answers["initialize"] = lambda asked: asked.dies()
    del slow.answers["initialize"]
    with pytest.raises(ConfigurationError, match="'t' is a tool of 'a' and of 'b'"):
        await ProxyService(
            World().parts, (server("a", "t"), down, slow, server("b", "t")), "none", is_alone=False
        ).check_names(timeout_seconds=0.05)
    assert "could not look at the names of all servers in time" in caplog.messages
    assert slow.link.closed == 1
