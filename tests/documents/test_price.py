"""The number that the README opens with."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_price_in_the_readme_is_the_one_that_was_measured():
    readme, page = (ROOT / name for name in ("README.md", "docs/how-to/price.md"))
    text = " ".join(readme.read_text().split())
    found = re.search(r"With (\d+) tools, .* cost ([\d.]+) of .* without a proxy, and ([\d.]+) of ", text)
    tools, of_no_proxy, of_search = found.groups()
    [row] = [line.split("|")[1:-1] for line in page.read_text().splitlines() if line.startswith(f"| {tools} |")]
    search, riglm = (float(cell.split(";")[0]) for cell in row[2:4])
    assert float(of_no_proxy) == riglm
    assert abs(float(of_search) - riglm / search) <= 0.01
    assert f"--tools {tools}" in text
    of_no_proxy, of_search = re.search(r"results have 2,000, these are ([\d.]+) and ([\d.]+) ", text).groups()
    lines = page.read_text().splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| coding agent |"))
    heads, _, _, *rows = (line.split("|") for line in lines[start : start + 5])
    search, riglm = (float(row[heads.index(f" {tools} tools ")].split(";")[0]) for row in rows)
    assert float(of_no_proxy) == riglm
    assert abs(float(of_search) - riglm / search) <= 0.01
