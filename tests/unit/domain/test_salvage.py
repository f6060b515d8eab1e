import pytest

from riglm.domain import jsonrpc
from riglm.domain.rawjson import EDGE, asked_id

PARAMS = b'"params":{"id":9,"text":"' + b"x" * 2 * EDGE + b'"}'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/call",%b}', b"5"),
        (b'{"id": "a b" , "jsonrpc": "2.0", "method": "x", %b}', b'"a b"'),
        (b'{"method":"tools/call","id":-7,"jsonrpc":"2.0",%b}', b"-7"),
        (b'{"method":"tools/call",%b,"jsonrpc":"2.0","id":3}', b"3"),
        (b'{"jsonrpc":"2.0","method":"tools/call",%b,"id":3,"jsonrpc":"2.0"} ', b"3"),
        (b'{"jsonrpc":"2.0","method":"notifications/progress",%b}', None),
        (b'{"jsonrpc":"2.0","id":5,"result":{%b}}', None),
        (b'{"result":{%b},"jsonrpc":"2.0","id":5}', None),
        (b'{%b,"method":"tools/call","id":5}', None),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/call",%b}', None),
        (b"%b", None),
    ],
)
def test_the_id_of_a_damaged_request_is_found_where_clients_write_it(line, found):
    whole = line % PARAMS
    assert asked_id(whole[:EDGE], whole[-EDGE:]) == found


def test_a_request_that_nests_too_deeply_is_refused_under_its_id():
    deep = b'{"jsonrpc":"2.0","id":"deep","method":"x","params":{"a":%b}}' % (b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(jsonrpc.MalformedMessageError, match="nested too deeply") as refused:
        jsonrpc.decode(deep)
    assert refused.value.id == b'"deep"'
