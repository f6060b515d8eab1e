"""Doctor's probe of one server."""

import pytest

from riglm.application.setup.doctor.server_checks import probe_server
from riglm.domain import jsonrpc
from tests.unit.application.fakes import Server, asks, opened, tools


@pytest.mark.parametrize(
    ("method", "code"),
    [("ping", None), ("roots/list", -32601), ("sampling/createMessage", -32601), ("vendor/unknown", -32601)],
)
@pytest.mark.parametrize("own", ["initialize", "tools/list", "server/discover"])
async def test_a_server_that_asks_during_the_probe_is_answered_by_riglm(own, method, code):
    answers = {"initialize": opened("tools"), "tools/list": tools("t"), "server/discover": b'{"supportedVersions":[]}'}
    server, said = Server("a", answers), []

    def asking(asked):
        link = server.shared if own == "server/discover" else server.link
        asked.says(asks(5, method).line)
        said.append(jsonrpc.decode(link.sent[-1]))
        asked.result(answers[own])

    server.answers[own] = asking
    found = await probe_server(server, 5.0, lambda: None)
    assert (found.failure, found.catalog.names) == ("", ("t",))
    assert [(answer.id, jsonrpc.error_code(answer)) for answer in said] == [(b"5", code)]
