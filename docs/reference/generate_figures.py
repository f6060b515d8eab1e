"""Draws the figures of the documents from the tables that stand in them: `docs/images/*.svg`.

The tables are what benchmarks printed, and each says which; a figure can therefore say nothing else than its page. Run
it after a table changed; `--check` only checks that the files are current.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from riglm.adapters.reports import HEIGHT, LEFT, TOP, WIDTH, Series, chart, lines, middle, picture

DOCS = Path(__file__).parents[1]


def table(page: str, heading: str, position: int = 0) -> list[list[str]]:
    """Return the rows of a table below a heading, the heading row first; `position` counts the tables from 0."""
    text = (DOCS / page).read_text("utf-8")
    below = text[text.index(f"\n## {heading}\n") :]
    blocks = re.findall(r"(?:^\|.*\n)+", below, re.MULTILINE)
    if len(blocks) <= position:
        raise ValueError(f"{page}: no table {position} below {heading!r}")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in blocks[position].splitlines()]
    return [row for row in rows if not re.fullmatch(r"[-: ]*", "".join(row))]


def number(cell: str) -> float:
    """The first number of a cell."""
    found = re.search(r"-?\d+(\.\d+)?", cell)
    if found is None:
        raise ValueError(f"no number in {cell!r}")
    return float(found.group())


def learning_curve() -> str:
    """Draw the share of calls whose tool was listed, by the number of sessions learned."""
    heading, *rows = table("how-to/price.md", "What was measured", 1)
    series = [
        Series(heading[column], tuple(number(row[column + 1]) for row in rows)) for column in range(1, len(heading), 2)
    ]
    return chart("Calls whose tool was listed, %", [f"{row[0]} sessions" for row in rows], series, lines)


def retrieval() -> str:
    """What words, vectors and both together find, before anything was learned."""
    heading, *rows = table("discussions/retrieval.md", "Contribution of each part")
    means = {row[0]: number(row[heading.index("mean")]) for row in rows}
    names = {"lexical": "words alone", "dense": "vectors alone", "rrf": "fused by rank", "as it ships": "riglm"}
    series = [Series("", tuple(means[key] for key in names))]
    return chart("Right tools among the first five, %, mean of nine sets", list(names.values()), series, bars)


def new_tools() -> str:
    """How often the next tool, new to the session, is among 15."""
    rows = table("discussions/prediction.md", "Measurements")[1:]
    pairs = [re.findall(r"\d+\.\d+", row[2]) for row in rows]
    series = [
        Series("hybrid", tuple(float(one) for one, _ in pairs)),
        Series("blend", tuple(float(two) for _, two in pairs)),
    ]
    return chart("Tools new to the session among the first 15, %", [row[0] for row in rows], series, bars)


def price() -> str:
    """Draw the price of lists relative to no proxy."""
    _, *rows = table("how-to/price.md", "What was measured")
    series = [
        Series(name, tuple(number(row[column]) for row in rows))
        for column, name in ((2, "host's search"), (3, "riglm"))
    ]
    return chart(
        "Price of model requests, relative to no proxy", [f"{row[0]} tools" for row in rows], series[::-1], bars
    )


def bars(series: Sequence[Series], top: float) -> Iterator[str]:
    """Bars side by side at each place."""
    count = len(series[0].values)
    wide = min(56.0, 0.8 * (WIDTH - 16 - LEFT) / count / len(series))
    for at, each in enumerate(series):
        for index, value in enumerate(each.values):
            x = middle(index, count) + wide * (at - len(series) / 2)
            y = TOP + HEIGHT * (1 - value / top)
            size = f'width="{wide - 3:.1f}" height="{TOP + HEIGHT - y:.1f}"'
            yield f'<rect class="c{at}" x="{x:.1f}" y="{y:.1f}" {size}/>'
            place = f'x="{x + wide / 2 - 1.5:.1f}" y="{y - 4:.1f}"'
            yield f'<text class="small" text-anchor="middle" {place}>{value:g}</text>'


_SERVERS = {20: 30, 97: 50, 174: 40}
"""The number of tools of each server, by its height in the picture."""


def way_of_a_list() -> str:
    """Draw where riglm is, and what happens to a list and a call; the size of the list is that of the price table."""
    catalog = sum(_SERVERS.values())
    heading, *rows = table("how-to/price.md", "What was measured")
    [listed] = [number(row[heading.index("first list")]) for row in rows if row[0] == str(catalog)]
    parts = [
        *_box(16, 60, 130, 130, "Client", "sends the list", "to its model"),
        *_box(
            300,
            20,
            170,
            210,
            "riglm",
            f"knows {catalog} tools,",
            "predicts, lists,",
            "searches, calls,",
            "records, learns",
        ),
        *(part for y, tools in _SERVERS.items() for part in _box(574, y, 130, 56, "Server", f"{tools} tools")),
        *_arrow((300, 95), (152, 95), f"{listed:.0f} tools + search"),
        *_arrow((146, 135), (294, 135), "tools/call"),
        *_arrow((300, 165), (152, 165), "the server's result"),
        *(part for y in (48, 125, 202) for part in _arrow((470, 125), (568, y), "")),
    ]
    return picture(250, parts, f"riglm lists {listed:.0f} of {catalog} tools and reaches all")


def request_path() -> str:
    """The components that a request passes, the stages among them, and what the stages use."""
    return picture(
        270,
        [
            *_box(8, 20, 116, 84, "Transport", "stdio, HTTP, SSE", "bytes to messages"),
            *_box(152, 20, 116, 84, "Connection", "of one client,", "any era"),
            *_box(296, 20, 128, 84, "Stages", "before, in order;", "after, in reverse"),
            *_box(452, 20, 116, 84, "Members", "one or several", "servers as one"),
            *_box(596, 20, 116, 84, "Link", "stdio, HTTP, SSE", "to one server"),
            *(part for x in (124, 268, 424, 568) for part in _arrow((x, 50), (x + 24, 50), "")),
            *(part for x in (152, 296, 452, 596) for part in _arrow((x, 76), (x - 24, 76), "")),
            *_box(80, 170, 150, 76, "Sessions", "by handle, key,", "connection"),
            *_box(286, 170, 148, 76, "Filtering", "policy, list plan,", "prediction"),
            *_box(490, 170, 150, 76, "Tracking", "queue, spool,", "store"),
            *_arrow((320, 104), (190, 164), ""),
            *_arrow((360, 104), (360, 164), ""),
            *_arrow((400, 104), (530, 164), ""),
        ],
        "The path of a request and of its reply",
    )


_SIGNALS = (
    "what followed what",
    "what is used together",
    "the server in use",
    "words and meaning",
    "similar contexts",
    "how often, and when",
)


def way_of_a_prediction() -> str:
    """From what is known to a list."""
    parts = [
        *_box(16, 85, 140, 110, "Known now", "the session's calls", "its context", "all tools"),
        *(part for at, name in enumerate(_SIGNALS) for part in _box(216, 12 + 43 * at, 170, 34, "", name)),
        *_box(446, 30, 120, 80, "Order", "weights learned", "from each call"),
        *_box(446, 170, 120, 80, "How many", "those that pay", "for their tokens"),
        *_box(620, 95, 84, 90, "List", "pinned", "and kept,", "predicted"),
        *(part for at in range(len(_SIGNALS)) for part in _arrow((156, 140), (210, 29 + 43 * at), "")),
        *(part for at in range(len(_SIGNALS)) for part in _arrow((386, 29 + 43 * at), (440, 70), "")),
        *_arrow((506, 110), (506, 164), ""),
        *_arrow((566, 70), (614, 115), ""),
        *_arrow((566, 210), (614, 165), ""),
    ]
    return picture(280, parts, "How a list is predicted")


def _box(x: int, y: int, width: int, height: int, title: str, *texts: str) -> Iterator[str]:
    yield f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    first = y + height / 2 - 10 * (len(texts) if title else len(texts) - 1) + 5
    for index, text in enumerate((title, *texts) if title else texts):
        kind = "title" if title and index == 0 else "small"
        place = f'x="{x + width / 2:g}" y="{first + 20 * index:g}"'
        yield f'<text class="{kind}" text-anchor="middle" {place}>{escape(text)}</text>'


def _arrow(start: tuple[int, int], end: tuple[int, int], text: str) -> Iterator[str]:
    yield f'<path class="arrow" marker-end="url(#tip)" d="M{start[0]} {start[1]}L{end[0]} {end[1]}"/>'
    if text:
        middle = (start[0] + end[0]) / 2
        yield f'<text class="small" text-anchor="middle" x="{middle:g}" y="{start[1] - 7}">{escape(text)}</text>'


FIGURES: dict[str, Callable[[], str]] = {
    "way-of-a-list.svg": way_of_a_list,
    "request-path.svg": request_path,
    "way-of-a-prediction.svg": way_of_a_prediction,
    "learning-curve.svg": learning_curve,
    "price.svg": price,
    "retrieval.svg": retrieval,
    "new-tools.svg": new_tools,
}


def files() -> dict[Path, str]:
    """What each file should hold."""
    return {DOCS / "images" / name: draw() for name, draw in FIGURES.items()}


if __name__ == "__main__":
    from keeping import keep

    sys.exit(keep(files()))
