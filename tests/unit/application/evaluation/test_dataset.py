import pytest

from riglm.application.evaluation.dataset import DatasetError, digest, read_dataset, read_tools
from tests.unit.application.evaluation.sets import write

TOOLS = [{"name": "a"}, {"name": "b", "description": "second"}]


def test_requests_come_in_the_order_of_their_hashes_up_to_the_limit(tmp_path):
    queries = [{"id": f"q{number}", "query": "x", "tools": ["a"]} for number in range(9)]
    read = read_dataset(write(tmp_path / "set", TOOLS, queries), limit=4)
    assert [query.id for query in read.queries] == sorted((query["id"] for query in queries), key=digest)[:4]
    assert (read.name, read.side) == ("set", "dev")


def test_equally_right_tools_make_one_group(tmp_path):
    query = {"id": "q", "query": "x", "tools": ["a"], "any_of": [["a", "b"]], "group": "g"}
    (read,) = read_dataset(write(tmp_path / "set", TOOLS, [query])).queries
    assert (read.gold, read.group) == (((0, 1),), "g")


def test_each_needed_tool_is_a_group_of_its_own(tmp_path):
    (read,) = read_dataset(write(tmp_path / "set", TOOLS, [{"id": "q", "query": "x", "tools": ["b", "a"]}])).queries
    assert read.gold == ((1,), (0,))


@pytest.mark.parametrize(
    "fields",
    [
        {"input_schema": {"type": "object", "properties": {"city": {"description": "Where"}, "day": {}}}},
        {"input_schema": {"required": [{"name": "city", "description": "Where"}], "optional": [{"name": "day"}]}},
        {"input_schema": [{"name": "city", "description": "Where"}, {"name": "day"}]},
        {"input_schema": {"city": {"description": "Where"}, "day": {"type": "str"}}},
        {"parameters": 'required [{"name": "city", "description": "Where"}] optional [{"name": "day"}]'},
    ],
)
def test_parameters_are_read_in_every_shape_that_the_sets_use(tmp_path, fields):
    (tool,) = read_tools(write(tmp_path / "set", [{"name": "a", **fields}], []))
    assert (tool.parameters, tool.parameter_descriptions) == (("city", "day"), ("Where",))


@pytest.mark.parametrize("schema", [None, 7, "", "required [broken", {"properties": 7}, {"required": 3}])
def test_a_schema_of_no_known_shape_has_no_parameters(tmp_path, schema):
    (tool,) = read_tools(write(tmp_path / "set", [{"name": "a", "input_schema": schema}], []))
    assert tool.parameters == ()


def test_the_name_of_the_server_is_taken_off_the_name_of_the_tool(tmp_path):
    tools = read_tools(write(tmp_path / "set", [{"name": "gh__open", "server": "gh"}, {"name": "x_y"}], []))
    assert [tool.bare_name for tool in tools] == ["open", "x_y"]


@pytest.mark.parametrize(
    ("tools", "queries", "place"),
    [
        (["{"], [], "tools.jsonl:1"),
        (["[]"], [], "tools.jsonl:1"),
        ([{"name": "a"}, "", {"name": ""}], [], "tools.jsonl:3"),
        ([{"name": "a"}, {"name": "a"}], [], "tools.jsonl:2"),
        ([{"name": "a", "description": 7}], [], "tools.jsonl:1"),
        (TOOLS, [{"id": "q", "query": "x", "tools": ["nobody"]}], "queries.jsonl:1"),
        (TOOLS, [{"id": "q", "query": "x", "tools": []}], "queries.jsonl:1"),
        (TOOLS, [{"id": "q", "query": "x", "tools": "a"}], "queries.jsonl:1"),
        (TOOLS, [{"id": "q", "query": "x", "any_of": [[]]}], "queries.jsonl:1"),
        (TOOLS, [{"id": "q", "query": "", "tools": ["a"]}], "queries.jsonl:1"),
        (TOOLS, [{"query": "x", "tools": ["a"]}], "queries.jsonl:1"),
    ],
)
def test_wrong_data_is_refused_by_file_and_line(tmp_path, tools, queries, place):
    with pytest.raises(DatasetError, match=place):
        read_dataset(write(tmp_path / "set", tools, queries))


def test_a_missing_set_and_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="No such file"):
        read_dataset(tmp_path / "nothing")
    broken = write(tmp_path / "set", [], [])
    (broken / "tools.jsonl").write_bytes(b'{"name": "\xff"}')
    with pytest.raises(DatasetError, match="UTF-8"):
        read_dataset(broken)
