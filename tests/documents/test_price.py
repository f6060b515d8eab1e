"""The numbers of the README are those of the pages that it links to."""

import re
from itertools import takewhile

from tests.documents.page import ROOT

README = (ROOT / "README.md").read_text("utf-8")
TEXT = " ".join(README.split())
PRICES = (ROOT / "docs" / "how-to" / "price.md").read_text("utf-8").splitlines()
CLIENTS = (ROOT / "docs" / "discussions" / "filtering.md").read_text("utf-8").splitlines()


def rows(lines: list[str], first_head: str) -> list[list[str]]:
    """Return the cells of a table, the heads first, found by the first of these."""
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {first_head} |"))
    table = list(takewhile(lambda line: line.startswith("|"), lines[start:]))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (table[0], *table[2:])]


def numbers(cell: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell)]


def test_the_prices_in_the_readme_are_the_measured_ones() -> None:
    found = re.search(r"With (\d+) tools, .* cost ([\d.]+) of .* without a proxy, and ([\d.]+) of ", TEXT)
    assert found
    tools = found.group(1)
    measured = next(row for row in rows(PRICES, "tools") if row[0] == tools)
    search, riglm = (numbers(cell)[0] for cell in measured[2:4])
    assert float(found.group(2)) == riglm
    assert abs(float(found.group(3)) - riglm / search) <= 0.01
    assert f"--tools {tools}" in TEXT
    found = re.search(r"results have 2,000, these are ([\d.]+) and ([\d.]+) ", TEXT)
    assert found
    heads, _, of_search, of_riglm = rows(PRICES, "coding agent")
    search, riglm = (numbers(row[heads.index(f"{tools} tools")])[0] for row in (of_search, of_riglm))
    assert float(found.group(1)) == riglm
    assert abs(float(found.group(2)) - riglm / search) <= 0.01


def test_the_prices_on_the_first_page_are_those_of_the_readme() -> None:
    page = " ".join((ROOT / "docs" / "index.md").read_text("utf-8").split())
    assert re.findall(r"\*\*([\d.]+)\*\*", page) == [
        found[1] for found in re.finditer(r"(?:cost|these are) ([\d.]+) (?:of what they cost without|and)", TEXT)
    ]


def test_what_clients_load_in_the_readme_is_what_was_measured() -> None:
    _, *clients = rows(README.splitlines(), "client")
    measured = [(row[0], *numbers(row[3])) for row in rows(CLIENTS, "client, mode")[1:]]
    for named, _, after in clients:
        for name in named.split(", "):
            if claimed := re.search(r"(\d+) of 60(?: and (\d+) meta-tools)?", after):
                loaded = {row[1:] for row in measured if row[0].startswith(name)}
                assert (float(claimed[1]), float(claimed[2] or 0)) in loaded, name
    assert {"Claude Code", "Codex", "opencode, Gemini CLI"} < {named for named, *_ in clients}


def test_the_searches_saved_in_the_readme_are_the_measured_ones() -> None:
    found = re.search(r"with (\d+) tools, this saves ([\d.]+) of ([\d.]+) model requests", TEXT)
    assert found
    heads, _, search, claude, *_ = rows(PRICES, "client")
    column = heads.index(f"{found[1]} tools")
    assert search[0] == "tool search alone"
    assert claude[0] == "Claude Code with its search"
    assert [float(found[3]), float(found[2])] == [numbers(search[column])[1], numbers(claude[column])[2]]
