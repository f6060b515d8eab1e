"""The rooms of the application, as newcomers are told of them."""

import re
import tomllib
from itertools import chain

from tests.documents.page import ROOT

_ROW = re.compile(r"^\| `app/(\w+)` \| .+ \|$", re.MULTILINE)


def test_every_room_is_told_of_in_the_order_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each.get("containers") == ["riglm.application"])
    rooms = chain.from_iterable(layer.split(" | ") for layer in layers)
    page = (ROOT / "docs" / "reference" / "architecture.md").read_text("utf-8")
    assert _ROW.findall(page) == list(rooms)
