from riglm.domain.retrieval.words import (
    MAX_REQUEST_LENGTH,
    MAX_SENTENCES,
    hashed,
    request_texts,
    split_name,
    tool_text,
    words,
)
from riglm.domain.tool import ToolProfile


def test_names_in_any_style_give_the_same_words():
    assert words("getUserNames") == words("get_user_names") == words("get-user.names") == ["get", "user", "nam"]


def test_words_that_say_nothing_do_not_count():
    assert words("please show me what is in the list of my queries") == ["show", "list", "query"]


def test_a_name_is_split_at_humps_and_acronyms():
    assert split_name("getHTTPResponse_by-id") == "get HTTP Response by id"


def test_a_text_of_a_megabyte_is_read_only_in_part():
    assert len(words("word " * 200_000)) < 10_000


def test_control_characters_and_lone_surrogates_are_no_words_and_no_error():
    assert words("\x00\x1b[31m \ud800 ") in ([], ["31m"])
    assert isinstance(hashed("\ud800"), int)


def test_the_texts_of_a_huge_request_are_bounded():
    texts = request_texts("one two three. " * 100_000)
    assert len(texts) == MAX_SENTENCES + 1
    assert sum(map(len, texts)) <= 2 * MAX_REQUEST_LENGTH


def test_what_is_embedded_of_a_tool_names_its_server():
    tool = ToolProfile(name="gh__createIssue", bare_name="createIssue", server="gh", description="Open an issue")
    assert tool_text(tool) == "gh create Issue: Open an issue"
