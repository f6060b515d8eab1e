"""What riglm does on the side never reaches a client when it fails."""

import logging
from dataclasses import replace

import pytest

from riglm.application.failing_open import FailingOpen
from riglm.application.forwarding.catalogs import CatalogCache
from riglm.application.forwarding.proxied_request import NOWHERE, ProxiedRequest
from riglm.domain import jsonrpc
from riglm.domain.session import ClientInfo, Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Server, World

LIST = jsonrpc.request(b"1", "tools/list", b"{}")
ANSWER = jsonrpc.result(b"1", b'{"tools":[{"name":"a"}]}')


class Failing(CatalogCache):
    error = ZeroDivisionError("the reader")

    def read(self, upstream, asked, result):
        raise self.error


def link_of():
    server = Server("up", {})
    return server.stateless(None)


def a_session(world):
    return world.sessions.of_connection(Caller(transport=Transport.HTTP), ClientInfo(), "")


def test_a_list_that_cannot_be_noted_is_shown_and_the_failure_is_logged_once(caplog):
    world = World()
    session = a_session(world)
    services = replace(world.services, catalogs=Failing())
    for _ in range(3):
        assert services.listed(session, link_of(), 0, ProxiedRequest(LIST, NOWHERE), ANSWER) is ANSWER
    assert [record.getMessage() for record in caplog.records] == [
        "a list could not be noted; it goes out as it came, and this is said once"
    ]
    assert caplog.records[0].exc_info[1] is Failing.error


def test_a_list_that_is_an_error_shows_nothing():
    world = World()
    error = jsonrpc.error(b"1", -1, "x")
    assert world.services.listed(a_session(world), link_of(), 0, ProxiedRequest(LIST, NOWHERE), error) is error
    assert world.records.shown == []


def test_each_kind_of_failure_is_said_once(caplog):
    guarded = FailingOpen(logging.getLogger("riglm.test"), "it failed;")
    for error in (KeyError("a"), KeyError("b"), ValueError("c"), KeyError("d")):
        with guarded:
            raise error
    assert [str(record.exc_info[1]) for record in caplog.records] == ["'a'", "c"]


def test_what_ends_the_process_passes():
    with pytest.raises(KeyboardInterrupt), FailingOpen(logging.getLogger("riglm.test"), ""):
        raise KeyboardInterrupt
