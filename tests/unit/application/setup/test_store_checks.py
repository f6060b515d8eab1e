from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from riglm.application.setup import store_checks
from riglm.application.setup.store_checks import check_client_files, check_recorded_client
from riglm.domain.client_setup import ClientSetup, ConfigLocation, RiglmServerEntry
from riglm.domain.doctor import Finding, RecordedClient, Severity
from riglm.domain.schemas.filtering import FilteringSettings


def seen(name: str, era: str = "handshake") -> RecordedClient:
    return RecordedClient(name=name, version="1.2", era=era, transport="stdio", last_seen=1.0, sessions=3)


@pytest.mark.parametrize(
    ("client", "era", "filtering", "severity", "surface"),
    [
        ("codex-mcp-client", "handshake", {}, Severity.OK, "stable"),
        ("codex-mcp-client", "handshake", {"surface": "dynamic"}, Severity.WARNING, "dynamic"),
        ("codex-mcp-client", "handshake", {"mode": "shadow"}, Severity.OK, "full"),
        ("claude-ai", "handshake", {"clients": {"claude-*": "dynamic"}}, Severity.WARNING, "dynamic"),
        ("claude-code", "modern", {}, Severity.OK, "hints"),
        ("opencode", "handshake", {}, Severity.OK, "dynamic"),
        ("somebody", "handshake", {}, Severity.NOTE, "dynamic"),
        ("somebody", "modern", {}, Severity.OK, "stable"),
    ],
)
def test_a_client_is_told_with_its_surface_and_warned_of_where_changes_do_not_reach_it(
    client: str, era: str, filtering: dict[str, Any], severity: Severity, surface: str
) -> None:
    found = check_recorded_client(seen(client, era), FilteringSettings(**filtering), {})
    assert found.severity is severity
    assert f"surface: {surface}, because " in found.what
    assert bool(found.fix) is (severity is not Severity.OK)


def test_it_says_why_claude_code_gets_a_short_list() -> None:
    client = replace(seen("claude-code", "modern"), no_tool_search="ENABLE_TOOL_SEARCH is false")
    found = check_recorded_client(client, FilteringSettings(), {})
    assert "surface: stable, because it may load every tool, since ENABLE_TOOL_SEARCH is false" in found.what


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three programs: a riglm of this version, an older one, and another program."""
    known = {"/bin/riglm", "/old/riglm", "/bin/cat"}
    monkeypatch.setattr(store_checks.shutil, "which", lambda program: program if program in known else None)


def check(*entries: RiglmServerEntry, made: Any = (), enforced: Any = ()) -> list[Finding]:
    versions = {"/bin/riglm": "2", "/old/riglm": "1"}
    found = check_client_files(entries, made, lambda command: versions.get(command[0]), version="2", enforced=enforced)
    return list(found)


@pytest.mark.parametrize(
    ("command", "severity", "what"),
    [
        (("/bin/riglm", "run"), Severity.OK, "starts riglm 2"),
        (("/old/riglm", "run"), Severity.WARNING, "this one is 2"),
        (("/gone/riglm", "run"), Severity.ERROR, "is not there"),
        (("/bin/cat", "run"), Severity.ERROR, "does not identify itself as riglm"),
        (("/bin/riglm", "run", "--config", "/gone/riglm.yaml"), Severity.ERROR, "/gone/riglm.yaml"),
    ],
)
def test_a_client_that_starts_no_riglm_or_another_one_is_told(
    command: tuple[str, ...], severity: Severity, what: str
) -> None:
    entry = RiglmServerEntry(client="cursor", file=Path("/home/mcp.json"), entry="riglm", command=command)
    (found,) = check(entry)
    assert (found.severity, found.place) == (severity, "cursor /home/mcp.json")
    assert what in found.what


@pytest.mark.parametrize(
    ("may_defer", "is_enforced", "is_installed", "fix"),
    [
        (True, True, True, "riglm enforce"),
        (True, True, False, "docs/how-to/clients.md names the setting that loads them at once"),
        (True, False, True, ""),
        (False, True, True, ""),
    ],
)
def test_a_client_that_may_defer_a_short_list_is_reported(
    may_defer: bool, is_enforced: bool, is_installed: bool, fix: str, tmp_path: Path
) -> None:
    file = tmp_path / "riglm.yaml"
    file.touch()
    command = ("/bin/riglm", "run", "--config", str(file))
    entry = RiglmServerEntry(
        client="codex", file=Path("/home/config.toml"), entry="riglm", command=command, may_defer=may_defer
    )
    made = (replace(installed(client="codex"), configuration=file),) if is_installed else ()
    enforced = {file} if is_enforced else set()
    found = check(entry, made=made, enforced=enforced)
    assert (found[0].severity, found[0].fix) == (Severity.WARNING if fix else Severity.OK, fix)


def installed(project: str | None = None, client: str = "cursor") -> ClientSetup:
    place = ConfigLocation(client=client, file=Path(project or "/home") / "mcp.json", path=("mcpServers",))
    return ClientSetup(
        place=replace(place, project=Path(project) if project else None),
        configuration=Path(f"/etc/riglm{project or ''}.yaml"),
        entry="riglm",
        command=(),
        servers={},
        before="",
        after="",
        configured="",
    )


HERE, THERE, OTHER = installed(), installed("/my work"), installed(client="codex")


@pytest.mark.parametrize(
    ("made", "program", "fix"),
    [
        (HERE, "/gone/riglm", "riglm init --client cursor"),
        (THERE, "/old/riglm", "riglm init --client cursor --project '/my work'"),
        (
            THERE,
            "/bin/riglm",  # and its configuration is not there
            "riglm undo --client cursor --project '/my work', then, to have riglm there again, "
            "riglm init --client cursor --project '/my work'",
        ),
        (
            HERE,
            "/bin/riglm",
            "riglm undo --client cursor, then, to have riglm there again, "
            "riglm init --client cursor and riglm init --client cursor --project '/my work'",
        ),
    ],
)
def test_the_cure_of_an_entry_leaves_no_place_of_its_client_undone(
    made: ClientSetup, program: str, fix: str, tmp_path: Path
) -> None:
    configuration = made.configuration
    if program == "/old/riglm":
        configuration = tmp_path / "riglm.yaml"
        configuration.touch()
        made = replace(made, configuration=configuration)
    command = (program, "run", "--config", str(configuration))
    entry = RiglmServerEntry(client=made.client, file=made.file, entry="riglm", command=command)
    known = [made, *(each for each in (HERE, THERE, OTHER) if each.place != made.place)]
    found = check(entry, made=known)
    assert [each.fix for each in found if each.place == f"cursor {made.file}"] == [fix]


def test_an_entry_that_init_did_not_write_is_corrected_by_hand() -> None:
    entry = RiglmServerEntry(client="cursor", file=Path("/home/mcp.json"), command=("/gone/riglm", "run", "--", "true"))
    (found,) = check(entry)
    assert found.fix == "correct its command in the file"
