"""The life of a conversation in any order: one answer for each request, nothing after the end, no record lost."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Server, Sink, World, asks, opened

PICK = st.integers(0, 5)
TOOLS = st.sampled_from([b"a__t", b"b__t", b"t", b"nobody", b"a__u"])
METHODS = st.sampled_from(["tools/list", "resources/list", "resources/read", "vendor/ask", "initialize", "ping"])


class Life(RuleBasedStateMachine):
    """A client, its servers, and whatever can happen between them."""

    servers = ("a",)

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World(grace=0.0)
        answers = {"initialize": opened("tools", "resources"), "ping": b"{}"}
        self.upstreams = [Server(name, answers) for name in self.servers]
        self.channel = Channel()
        self.sinks = {}
        self.calls = set()
        self.cancelled = {}
        self.dead = set()
        self.closed = False
        self.do(self.begin)

    def converse(self, caller):
        return ProxyService(self.world.parts, self.upstreams).connect(caller, self.channel)

    def begin(self):
        self.conversation = self.converse(Caller(transport=Transport.HTTP))
        self.client("initialize", b"{}")

    def do(self, act, *args):
        """Act within the loop, and let everything that follows from it happen."""

        async def acting():
            act(*args)
            for _ in range(30):
                await asyncio.sleep(0)

        self.loop.run_until_complete(acting())

    def client(self, method, params):
        number = len(self.sinks) + 1
        self.sinks[number] = Sink()
        if method == "tools/call":
            self.calls.add(number)
        self.conversation.receive(asks(number, method, params), self.sinks[number])

    def notify(self, line):
        self.conversation.receive(jsonrpc.decode(line), Sink())

    @property
    def pending(self):
        """Whatever any server was asked, answered already or not."""
        links = [link for server in self.upstreams for link in server.links]
        return [asked for link in links for asked in link.asked]

    def open_numbers(self):
        return [number for number, sink in self.sinks.items() if not sink.answers and number not in self.cancelled]

    # --- the client ---

    @rule(tool=TOOLS)
    def calls_a_tool(self, tool):
        self.do(self.client, "tools/call", b'{"name":"%b"}' % tool)

    @rule(method=METHODS)
    def asks_something(self, method):
        self.do(self.client, method, b'{"uri":"x"}')

    @precondition(lambda self: self.open_numbers())
    @rule(pick=PICK)
    def uses_an_id_twice(self, pick):
        numbers = self.open_numbers()
        sink = Sink()
        message = asks(numbers[pick % len(numbers)], "tools/call", b'{"name":"a__t"}')
        self.do(self.conversation.receive, message, sink)
        assert jsonrpc.error_code(sink.answers[0]) == jsonrpc.INVALID_REQUEST

    @rule(pick=PICK)
    def gives_up(self, pick):
        number = list(self.sinks)[-1 - pick % len(self.sinks)]
        self.do(self.notify, b'{"method":"notifications/cancelled","params":{"requestId":%d}}' % number)
        if not self.sinks[number].answers:
            self.cancelled.setdefault(number, len(self.sinks[number].got))

    @precondition(lambda self: self.channel.told)
    @rule(pick=PICK)
    def answers_a_question(self, pick):
        message = jsonrpc.decode(self.channel.told[pick % len(self.channel.told)])
        if message.is_request:
            self.do(self.notify, b'{"id":%b,"result":{}}' % message.id)

    @rule(listening=st.booleans())
    def opens_or_closes_its_stream(self, listening):
        self.channel.is_open = listening
        self.do(lambda: self.conversation.listen(listening=listening))

    # --- the servers ---

    @precondition(lambda self: self.pending)
    @rule(pick=PICK, raw=st.sampled_from([b"{}", b'{"tools":[{"name":"t"}]}', b'{"tools":[],"nextCursor":"x"}']))
    def answers(self, pick, raw):
        self.do(self.pending[-1 - pick % len(self.pending)].result, raw)

    @precondition(lambda self: self.pending)
    @rule(pick=PICK, code=st.sampled_from([-32601, -32602, -32603]))
    def refuses(self, pick, code):
        self.do(self.pending[-1 - pick % len(self.pending)].error, code)

    @precondition(lambda self: self.pending)
    @rule(pick=PICK, line=st.sampled_from([b'{"method":"notifications/progress"}', b'{"id":1,"method":"roots/list"}']))
    def says_more(self, pick, line):
        self.do(self.pending[-1 - pick % len(self.pending)].says, line)

    @rule(
        pick=PICK,
        line=st.sampled_from(
            [
                b'{"id":1,"method":"roots/list","params":{"_meta":{"progressToken":1}}}',
                b'{"method":"notifications/tools/list_changed"}',
                b'{"method":"notifications/cancelled","params":{"requestId":1}}',
            ]
        ),
    )
    def speaks_up(self, pick, line):
        server = self.upstreams[pick % len(self.upstreams)]
        if server.links:
            self.do(server.link.says, line)

    @rule(pick=PICK)
    def crashes(self, pick):
        server = self.upstreams[pick % len(self.upstreams)]
        for link in server.links:
            for asked in link.asked:
                self.do(asked.dies)

    # --- what always holds ---

    @invariant()
    def every_request_has_one_answer_at_most_and_nothing_after_it(self):
        for number, sink in self.sinks.items():
            kinds = [each[0] for each in sink.got]
            assert "replied" not in kinds[:-1]
            if number in self.cancelled:
                assert len(sink.got) == self.cancelled[number]
            for answer in sink.answers:
                assert answer.id == b"%d" % number

    @invariant()
    def what_is_open_is_what_has_no_answer_yet(self):
        assert sorted(self.conversation.requests) == sorted(b"%d" % number for number in self.open_numbers())

    @invariant()
    def every_call_that_ended_is_recorded_once(self):
        assert len(self.world.records.calls) <= len(self.calls)
        ended = self.calls - set(self.open_numbers())
        assert len(ended) - len(self.world.records.calls) in range(len(self.cancelled) + 1)

    def teardown(self):
        self.loop.run_until_complete(self.conversation.close())
        before = {number: list(sink.got) for number, sink in self.sinks.items()}
        for asked in self.pending:
            self.do(asked.result)
        assert {number: sink.got for number, sink in self.sinks.items()} == before
        assert not self.conversation.requests
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()
        assert sorted(self.world.records.closed) == sorted(self.world.records.opened)
        assert len(self.world.sessions) == 0
        self.no_record_is_lost()

    def no_record_is_lost(self):
        assert len(self.world.records.calls) == len(self.calls)


class JointLife(Life):
    """The same in front of two servers; a call that was given up while nobody knew its server ran nowhere."""

    servers = ("a", "b")

    def no_record_is_lost(self):
        asked = {asked.message.id for asked in self.pending if asked.method == "tools/call"}
        assert len(asked) <= len(self.world.records.calls) <= len(self.calls)


TestOneServer = Life.TestCase
TestTwoServers = JointLife.TestCase
TestOneServer.settings = TestTwoServers.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
