from benchmarks.conformance.comparison import BASELINE, Checks, Lost, Tally, compare, known


def check(name: str, status: str, **more: str) -> dict[str, str]:
    return {"id": name, "status": status, **more}


def lost(direct: Checks, proxied: Checks) -> list[str]:
    return [loss.check for scenario in compare(direct, proxied) for loss in scenario.lost]


def test_a_check_that_passes_both_ways_is_not_lost() -> None:
    checks = {"tools": [check("listed", "SUCCESS"), check("note", "INFO")]}
    assert lost(checks, checks) == []


def test_a_check_that_fails_directly_cannot_be_lost() -> None:
    assert lost({"tools": [check("listed", "FAILURE")]}, {"tools": [check("listed", "FAILURE")]}) == []


def test_a_check_that_fails_through_riglm_is_lost_with_what_the_suite_said() -> None:
    direct = {"tools": [check("listed", "SUCCESS")]}
    proxied = {"tools": [check("listed", "WARNING", errorMessage="no answer")]}
    assert compare(direct, proxied)[0].lost == (Lost("tools", "listed", "no answer"),)


def test_a_check_that_passes_once_and_fails_once_counts_as_failed() -> None:
    direct = {"tools": [check("listed", "SUCCESS")]}
    assert lost(direct, {"tools": [check("listed", "SUCCESS"), check("listed", "FAILURE")]}) == ["listed"]


def test_a_check_that_was_skipped_through_riglm_is_lost() -> None:
    assert lost({"tools": [check("listed", "SUCCESS")]}, {"tools": [check("listed", "SKIPPED")]}) == ["listed"]


def test_a_scenario_that_never_ran_through_riglm_loses_all_its_checks() -> None:
    direct = {"tools": [check("one", "SUCCESS"), check("two", "SUCCESS")]}
    assert lost(direct, {}) == ["one", "two"]


def test_a_failure_that_only_shows_through_riglm_is_a_loss() -> None:
    direct = {"tools": [check("listed", "SUCCESS")]}
    proxied = {"tools": [check("listed", "SUCCESS"), check("crashed", "FAILURE")]}
    assert lost(direct, proxied) == ["crashed"]


def test_repeated_checks_are_all_counted() -> None:
    checks = {"tools": [check("listed", "SUCCESS"), check("listed", "SUCCESS"), check("called", "FAILURE")]}
    assert compare(checks, checks)[0].direct == Tally(2, 1)


def test_the_baseline_covers_a_check_only_where_it_was_explained() -> None:
    (entry,) = BASELINE
    loss = Lost("server-sse-polling", entry.check, "the check did not run")
    assert known(loss, entry.spec, entry.upstream) is entry
    assert known(loss, entry.spec, "http") is None
    assert known(loss, "2026-07-28", entry.upstream) is None
    assert known(Lost("server-sse-polling", "another", ""), entry.spec, entry.upstream) is None
