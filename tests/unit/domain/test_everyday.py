"""Everyday utility tools are recognized by their words."""

import pytest

from riglm.domain.everyday import everyday_weights

GENERAL = [
    ("filesystem__read_file", "Read the complete contents of a file."),
    ("fs-listDirectory", ""),
    ("write_file", ""),
    ("terminal-run_command", "Allows command execution."),
    ("local-python-execute", ""),
    ("brave__brave_web_search", "Searches."),
    ("fetch", "Fetches a URL."),
    ("time__get_current_time", ""),
    ("emails-send_email", ""),
    ("shell__sh", "Run a shell command and return its output."),
]
SPECIAL = [
    ("woocommerce-woo_orders_list", "List orders with optional filters."),
    ("airline__book_reservation", "Book a reservation."),
    ("ghost__offers_add", ""),
    ("cats__getRandomCat", ""),
    ("github-search_repositories", "Search for GitHub repositories."),
]


@pytest.mark.parametrize("tool", GENERAL, ids=[name for name, _ in GENERAL])
def test_everyday_weights_recognizes_utilities(tool: tuple[str, str]) -> None:
    assert 0.3 <= everyday_weights([tool])[tool[0]] <= 1


@pytest.mark.parametrize("tool", SPECIAL, ids=[name for name, _ in SPECIAL])
def test_everyday_weights_ignores_tools_of_one_subject(tool: tuple[str, str]) -> None:
    assert everyday_weights([tool]) == {tool[0]: 0.0}


def test_everyday_weights_puts_the_file_system_before_a_product() -> None:
    weights = everyday_weights([("github__get_file_contents", ""), ("filesystem__read_file", "")])

    assert weights["filesystem__read_file"] > weights["github__get_file_contents"] > 0


def test_everyday_weights_recognizes_a_file_system_of_any_name() -> None:
    names = ["acme__read_file", "acme__write_file", "acme__list_directory"]

    assert min(everyday_weights([(name, "") for name in names]).values()) >= 0.9


def test_everyday_weights_of_hostile_texts_are_fast_and_bounded() -> None:
    tools = [("", ""), ("a" * 100_000, "the " * 100_000), ("_" * 1000, "read " * 1000)]

    assert set(everyday_weights(tools).values()) == {0.0}
