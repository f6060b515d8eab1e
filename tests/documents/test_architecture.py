"""The packages of the application, as the architecture page lists them."""

import re
import tomllib
from itertools import chain

from tests.documents.page import ROOT

_ROW = re.compile(r"^\| `app/(\w+)` \| .+ \|$", re.MULTILINE)


def test_the_page_lists_the_packages_in_the_order_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each.get("containers") == ["riglm.application"])
    packages = chain.from_iterable(layer.split(" | ") for layer in layers)
    page = (ROOT / "docs" / "reference" / "architecture.md").read_text("utf-8")
    assert _ROW.findall(page) == list(packages)
