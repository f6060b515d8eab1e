"""Subscriptions of a handshake client, kept by one listen at a time of a modern upstream."""

import pytest

from riglm.application.proxy.bridge_subscription import Subscription
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from tests.unit.application.fakes import Client, Server

ALL = b'{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}'
LISTS = b'"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true'
GRANTED = b'{"jsonrpc":"2.0","id":"s","result":{}}'
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Stage:
    """A subscription between a client and a link."""

    def __init__(self, capabilities=ALL, **times):
        self.far = Server("far").stateless(None)
        self.heard = []
        self.subscription = Subscription(
            self.far,
            lambda params: jsonrpc.with_member(params, ("_meta",), b"{}"),
            lambda message: self.heard.append(message.line),
            **times,
        )
        self.subscription.offer(capabilities)

    def subscribe(self, uri=b'"note://\\u0061"', verb="subscribe"):
        client = Client(jsonrpc.request(b'"s"', f"resources/{verb}", b'{"uri":%b}' % uri))
        getattr(self.subscription, verb)(client)
        return client

    def acknowledge(self, index=-1, uris=b'["note://a"]'):
        params = b'{"notifications":{"resourceSubscriptions":%b},"_meta":{}}' % uris
        self.far.asked[index].notifies(ACKNOWLEDGED, params)


def listen(number, wanted):
    return (
        b'{"jsonrpc":"2.0","id":"riglm-listen-%d","method":"subscriptions/listen","params":{"notifications":{%b},"_meta":{}}}'
        % (number, wanted)
    )


def updated(uri=b"note://a", meta=b'"io.modelcontextprotocol/subscriptionId":"riglm-listen-1"'):
    return b'{ "uri":"%b","x":1.0,"_meta":{%b}}' % (uri, meta)


async def test_no_more_is_listened_when_the_client_listens_no_more():
    stage = Stage()
    stage.subscription.listen(listening=True)
    stage.acknowledge()
    stage.subscription.listen(listening=True)
    stage.subscription.listen(listening=False)
    assert stage.far.cancelled == [(b'"riglm-listen-1"', None)]
    stage.far.asked[0].notifies("notifications/tools/list_changed", b"{}")
    assert stage.heard == []
    assert len(stage.far.asked) == 1


async def test_the_old_listen_lasts_until_the_new_one_is_acknowledged():
    stage = Stage()
    stage.subscription.listen(listening=True)
    stage.acknowledge()
    client = stage.subscribe()
    assert stage.far.lines[1:] == [listen(2, LISTS + b',"resourceSubscriptions":["note://\\u0061"]')]
    stage.far.asked[0].notifies("notifications/vendor/old", b"{}")
    assert stage.far.cancelled == []
    stage.acknowledge()
    stage.far.asked[0].notifies("notifications/vendor/too late", b"{}")
    assert stage.far.cancelled == [(b'"riglm-listen-1"', None)]
    assert stage.heard == [b'{"jsonrpc":"2.0","method":"notifications/vendor/old","params":{}}']
    assert client.outcome == GRANTED


async def test_wishes_that_come_while_a_listen_opens_share_the_next_one():
    stage = Stage()
    first, *others = [stage.subscribe(uri) for uri in (b'"a"', b'"b"', b'"c"')]
    assert len(stage.far.asked) == 1
    stage.acknowledge(uris=b'["a"]')
    assert stage.far.lines[1:] == [listen(2, LISTS + b',"resourceSubscriptions":["a","b","c"]')]
    assert [first.outcome, *(one.outcome for one in others)] == [GRANTED, None, None]
    stage.acknowledge(uris=b'["a","b","c"]')
    assert [one.outcome for one in others] == [GRANTED, GRANTED]
    assert len(stage.far.asked) == 2


async def test_unsubscribing_is_granted_when_no_more_updates_will_come():
    stage = Stage()
    stage.subscribe(b'"a"')
    stage.acknowledge(uris=b'["a"]')
    stage.subscribe(b'"b"')
    stage.acknowledge(uris=b'["a","b"]')
    fewer = stage.subscribe(b'"a"', "unsubscribe")
    assert stage.far.lines[2:] == [listen(3, LISTS + b',"resourceSubscriptions":["b"]')]
    assert fewer.outcome is None
    stage.acknowledge(uris=b'["b"]')
    assert fewer.outcome == GRANTED
    none = stage.subscribe(b'"b"', "unsubscribe")
    assert none.outcome == GRANTED
    assert [name for name, _ in stage.far.cancelled] == [b'"riglm-listen-%d"' % number for number in (1, 2, 3)]
    assert stage.subscribe(b'"never"', "unsubscribe").outcome == GRANTED
    assert len(stage.far.asked) == 3


@pytest.mark.parametrize("uris", [b"[]", b'["note://b"]'])
async def test_a_resource_that_the_upstream_leaves_out_is_refused(uris):
    stage = Stage(b"{}")
    client = stage.subscribe()
    stage.acknowledge(uris=uris)
    assert client.outcome == (
        b'{"jsonrpc":"2.0","id":"s","error":{"code":-32602,'
        b'"message":"the upstream does not notify of changes of this resource"}}'
    )
    assert stage.far.cancelled == [(b'"riglm-listen-1"', None)]


@pytest.mark.parametrize("uri", [b"7", b"null", b"[]"])
async def test_a_subscription_to_nothing_is_refused(uri):
    stage = Stage()
    assert stage.subscribe(uri).outcome == (
        b'{"jsonrpc":"2.0","id":"s","error":{"code":-32602,"message":"Invalid params: the uri is missing"}}'
    )
    assert stage.far.asked == []


async def test_the_upstream_s_refusal_to_listen_is_the_answer_and_is_not_repeated():
    stage = Stage(delay=0.0)
    client = stage.subscribe()
    waiting = stage.subscribe(b'"b"')
    stage.far.asked[0].refused(b'{"code":-32601,"message":"n\\u006f","data":1.0}')
    refusal = b'{"jsonrpc":"2.0","id":"s","error":{"code":-32601,"message":"n\\u006f","data":1.0}}'
    assert (client.outcome, waiting.outcome) == (refusal, refusal)
    again = stage.subscribe()
    assert stage.far.lines[1:] == [listen(2, LISTS + b',"resourceSubscriptions":["note://\\u0061"]')]
    stage.acknowledge()
    assert again.outcome == GRANTED
    assert len(stage.far.asked) == 2


async def test_a_listen_that_breaks_is_opened_again_and_what_was_missed_is_told():
    stage = Stage(b'{"tools":{"listChanged":true}}', delay=0.0)
    stage.subscription.listen(listening=True)
    stage.acknowledge()
    stage.subscribe()
    stage.acknowledge()
    stage.far.asked[1].reply.failed(ErrorKind.UNAVAILABLE, "gone")
    again = await stage.far.next("subscriptions/listen", 3)
    wanted = b'"toolsListChanged":true,"resourceSubscriptions":["note://\\u0061"]'
    assert again.line == listen(3, wanted)
    assert stage.heard == []
    stage.acknowledge()
    assert stage.heard == [
        b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
        b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"note://\\u0061"}}',
    ]


@pytest.mark.parametrize("result", [b"{}", b'{"resultType":"complete","_meta":{}}'])
async def test_a_listen_that_the_upstream_ends_is_opened_again(result):
    stage = Stage(delay=0.0)
    stage.subscription.listen(listening=True)
    stage.acknowledge()
    stage.far.asked[0].result(result)
    assert (await stage.far.next("subscriptions/listen", 2)).line == listen(2, LISTS)


@pytest.mark.parametrize("kind", [ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT])
async def test_a_wish_that_cannot_be_carried_is_answered_so_and_forgotten(kind):
    stage = Stage(delay=0.0)
    stage.subscription.listen(listening=True)
    stage.acknowledge()
    client = stage.subscribe()
    stage.far.asked[1].reply.failed(kind, "gone")
    assert client.outcome == (kind, "gone")
    stage.far.asked[1].notifies("notifications/vendor/too late", b"{}")
    stage.far.asked[0].notifies("notifications/vendor/still", b"{}")
    assert stage.heard == [b'{"jsonrpc":"2.0","method":"notifications/vendor/still","params":{}}']
    stage.subscription.listen(listening=False)
    assert stage.far.cancelled == [(b'"riglm-listen-1"', None)]


async def test_an_upstream_that_does_not_acknowledge_is_given_up_and_asked_again():
    stage = Stage(timeout_seconds=0.01, delay=0.0)
    client = stage.subscribe()
    stage.subscription.listen(listening=True)
    again = await stage.far.next("subscriptions/listen", 2)
    assert client.outcome == (ErrorKind.TIMEOUT, "upstream 'far' did not acknowledge a subscription within 0.01 s")
    assert stage.far.cancelled[0] == (b'"riglm-listen-1"', None)
    assert again.line == listen(2, LISTS)
    stage.subscription.close()


async def test_an_upstream_that_answers_what_nobody_understands_is_left_alone():
    stage = Stage(delay=0.0)
    client = stage.subscribe()
    stage.subscription.listen(listening=True)
    stage.far.asked[0].reply.failed(ErrorKind.PROTOCOL, "garbage")
    assert client.outcome == (ErrorKind.PROTOCOL, "garbage")
    stage.subscribe()
    assert len(stage.far.asked) == 2
