"""The page's files, as they are served and shipped."""

import hashlib
import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from riglm.adapters.control.dashboard import CONTENT_SECURITY_POLICY, page_files, page_routes

INDEX = page_files()["index.html"].body.decode()


@pytest.fixture
def client():
    return TestClient(Starlette(routes=page_routes()))


def test_all_modules_are_loaded_at_once_and_not_one_after_the_other():
    modules = {path for path in page_files() if path.endswith(".js") and not path.startswith("vendor/")}
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
    "path", ["/assets/", "/assets/index.html", "/assets/../files.py", "/assets/%2e%2e/files.py", "/assets/nothing.js"]
)
def test_nothing_else_is_served(client, path):
    assert client.get(path).status_code == 404


def test_the_chart_library_is_the_one_that_its_note_names_with_its_licences():
    files = page_files()
    note = files["vendor/echarts/README.txt"].body.decode()
    assert hashlib.sha256(files["vendor/echarts/echarts.common.min.js"].body).hexdigest() in note
    for licence in ("LICENSE", "NOTICE", "licenses/LICENSE-d3", "licenses/LICENSE-zrender"):
        assert files[f"vendor/echarts/{licence}"].body
