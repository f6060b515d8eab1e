import asyncio

from tests.interaction import text
from tests.interaction.clients.message import Message
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient, Refuse
from tests.interaction.route import CROSSED, MAIN, Route, routes
from tests.interaction.stage import Stage

QUESTIONS = {
    "sampling/createMessage": (
        b'{"messages":[{"role":"user","content":{"type":"text","text":"\\u0061?"}}],"maxTokens":7,"x":1.0}'
    ),
    "elicitation/create": (
        b'{"message":"\\u0061?","requestedSchema":{"type":"object","properties":{"n":{"type":"number"}}},"x":1.0}'
    ),
    "roots/list": b'{"_meta":{"vendor/x":1.0}}',
}
ANSWER = b'{ "role":"assistant","content":{"type":"text","text":"\\u0061!"},"model":"m","x":[1.0,1E2] }'


@routes(CROSSED, HANDSHAKE)
async def test_questions_reach_the_client_and_answers_the_server(actors: Stage, route: Route):
    asked = {**QUESTIONS, "ping": b'{"vendor":1.0}', "vendor/ask": b'{"vendor":1.0}'}
    async with actors.client(route, answers=dict.fromkeys(asked, lambda _: ANSWER)) as client:
        for method, params in asked.items():
            client.asked.clear()
            reply = await client.call("ask", b'{"method":%b,"params":%b,"rounds":2}' % (text.dump(method), params))
            assert reply.words_list == [ANSWER.decode()] * 2
            assert [(message.method, message.params) for message in client.asked] == [(method, params)] * 2


@routes(MAIN, HANDSHAKE)
async def test_refusals_reach_the_server(actors: Stage, route: Route):
    refusal = b'{"code":-31998,"message":"n\\u006f","data":{"why":1.0}}'

    def refuse(_: Message) -> bytes:
        raise Refuse(refusal)

    async with actors.client(route, answers={"sampling/createMessage": refuse}) as client:
        arguments = b'{"method":"sampling/createMessage","params":%b}' % QUESTIONS["sampling/createMessage"]
        assert (await client.call("ask", arguments)).words == refusal.decode()


@routes(CROSSED, HANDSHAKE)
async def test_questions_go_to_the_client_whose_call_raised_them(actors: Stage, route: Route):
    async def one(number: int) -> list[str]:
        answer = b'{"number":%d}' % number
        async with actors.client(route, answers={"roots/list": lambda _: answer}) as client:
            exchanges = [await client.start_call("ask", {"method": "roots/list", "rounds": 3}) for _ in range(3)]
            return [words for exchange in exchanges for words in (await exchange.answer()).words_list]

    clients = 2 if route.front == "stdio" else 8
    found = await asyncio.gather(*(one(number) for number in range(clients)))
    assert found == [[f'{{"number":{number}}}'] * 9 for number in range(clients)]


@routes(MAIN, HANDSHAKE)
async def test_a_question_does_not_hold_up_other_calls(actors: Stage, route: Route):
    async with actors.client(route) as client:
        asked = asyncio.Event()

        def note(_: Message) -> bytes:
            asked.set()
            raise Refuse(b'{"code":1,"message":"later"}')

        client.answers["vendor/ask"] = note
        first = await client.start_call("ask", {"method": "vendor/ask"})
        second = await client.start_call("nonce", {"nonce": "meanwhile"})
        assert (await second.answer()).words == "meanwhile"
        await first.answer()
        assert asked.is_set()


@routes(CROSSED, HANDSHAKE)
async def test_notifications_of_the_client_reach_the_server(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        for method in ("notifications/roots/list_changed", "notifications/tasks/status"):
            await client.notify(method, b'{"_meta":{"n":1.50}}')
            entry = await log.wait_for(lambda entry: entry.event == "received" and entry.method == method)  # noqa: B023
            assert entry.parts["params"] == b'{"_meta":{"n":1.50}}'


@routes(MAIN, MODERN)
async def test_rounds_of_input_required_pass(actors: Stage, route: Route):
    async with actors.client(route) as client:
        for method, params in QUESTIONS.items():
            await _three_rounds(client, method, params)


async def _three_rounds(client: RawClient, method: str, params: bytes) -> None:
    arguments = b'{"method":%b,"params":%b,"rounds":3}' % (text.dump(method), params)
    answers = b"{}"
    for number in range(3):
        reply = await client.request("tools/call", text.merged(client.call_params("ask", arguments), answers))
        state = text.dump(text.dump([ANSWER.decode()] * number).decode())
        assert reply.result == (
            b'{"resultType":"input_required","inputRequests":{"question \\u0061":{"method":%b,"params":%b}},'
            b'"requestState":%b,"x":1.0}' % (text.dump(method), params, state)
        )
        answers = b'{"inputResponses":{"question \\u0061":%b},"requestState":%b}' % (ANSWER, state)
    last = await client.request("tools/call", text.merged(client.call_params("ask", arguments), answers))
    assert last.words_list == [ANSWER.decode()] * 3


@routes(MAIN, HANDSHAKE)
async def test_input_required_of_a_modern_upstream_is_asked_of_a_handshake_client(actors: Stage, route: Route):
    answers = dict.fromkeys(QUESTIONS, lambda _: ANSWER)
    async with actors.client(route, "--eras", "modern", answers=answers) as client:
        for method, params in QUESTIONS.items():
            client.asked.clear()
            reply = await client.call("ask", b'{"method":%b,"params":%b,"rounds":2}' % (text.dump(method), params))
            assert [text.value(words.encode()) for words in reply.words_list] == [text.value(ANSWER)] * 2
            asked = [(message.method, message.decoded("params")) for message in client.asked]
            assert asked == [(method, text.value(params))] * 2
