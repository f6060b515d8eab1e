import pytest

from riglm.adapters.mcp.upstream.channel import answered_id, not_an_answer


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":{"x":NaN}}', b"5"),
        (b'{"id": -7 , "jsonrpc": "2.0", "result": {', b"-7"),
        (b' { "jsonrpc" : "2.0" , "id" : "a b" , "error" : {', b'"a b"'),
        (b'{"jsonrpc":"2.0","id":"\\u0061","result":{', b'"a"'),
        (b'{"result":{"id":9,"x":NaN},"jsonrpc":"2.0","id":5}', b"5"),
        (b'{"jsonrpc":"2.0","result":{"id":9,"x":NaN},"id":5} \n', b"5"),
        (b'{"result":{"id":9},"id":5,"jsonrpc":"2.0"}', b"5"),
        (b'{"jsonrpc":"2.0","result":{"id":9,"x":NaN', None),
        (b'{"jsonrpc":"2.0","result":{"x":NaN,"id":9}}', None),
        (b'{"jsonrpc":"2.0","id":5,"params":{"x":NaN}}', None),
        (b'{"jsonrpc":"2.0","id":5,"method":"roots/list","params":{"x":NaN}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{"x":NaN},"id":5}', None),
        (b'{"jsonrpc":"2.0","id":null,"result":{', None),
        (b"loading model 5", None),
        (b"", None),
    ],
)
def test_only_an_id_at_either_end_of_an_answer_is_taken_for_its_id(line, key):
    assert answered_id(line, line) == key


def test_what_begins_with_a_method_is_no_answer():
    assert not_an_answer(b'{"method":"x"')
    assert not_an_answer(b'{"jsonrpc":"2.0","id":1,"method":"x"')
    assert not not_an_answer(b'{"jsonrpc":"2.0","id":1,"result":{"method":"x"')
