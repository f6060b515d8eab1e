"""The page's files, as they are served and shipped."""

import hashlib
import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from riglm.adapters.control.dashboard import ASSETS, CONTENT_SECURITY_POLICY, page_routes

INDEX = ASSETS.with_name("index.html").read_text("utf-8")


@pytest.fixture
def client():
    return TestClient(Starlette(routes=page_routes()))


def test_all_modules_are_loaded_at_once_and_not_one_after_the_other():
    modules = {file.relative_to(ASSETS).as_posix() for file in ASSETS.rglob("*.js") if "vendor" not in file.parts}
    early = set(re.findall(r'modulepreload" href="assets/([^"]+)"', INDEX))
    assert early == modules - {"main.js", "theme-at-start.js"}


def test_nothing_stands_in_the_page_that_its_policy_forbids():
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", INDEX)
    assert not re.search(r"https?://", INDEX)


def test_what_a_browser_has_already_is_not_sent_again(client):
    first = client.get("/")
    assert first.headers["content-type"] == "text/html; charset=utf-8"
    again = client.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    ["/assets/", "/assets/index.html", "/assets/../__init__.py", "/assets/%2e%2e/__init__.py", "/assets/nothing.js"],
)
def test_nothing_else_is_served(client, path):
    assert client.get(path).status_code == 404


def test_the_chart_library_is_the_one_that_its_note_names_with_its_licences():
    vendor = ASSETS / "vendor" / "echarts"
    library = (vendor / "echarts.common.min.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() in (vendor / "README.txt").read_text("utf-8")
    for licence in ("LICENSE", "NOTICE", "licenses/LICENSE-d3", "licenses/LICENSE-zrender"):
        assert (vendor / licence).read_bytes()
