"""Which names a list of names and patterns stands for, however they are spelt."""

import unicodedata

import pytest

from riglm.domain.naming import NamePatterns

CAFE = "café"


@pytest.mark.parametrize(
    "spelling",
    [
        "cafe\u0301_close",
        "CAFE\u0301_close",
        "Cafe\u0301Close",
        "_café_close",
        "--café.close",
        "ca_fé_close",
        "café\u200b_close",
        "\uff43afé_close",
        "c\u0430fé_close",
    ],
)
@pytest.mark.parametrize("pattern", ["café_close", "café_*", "caf?_close", "[cd]afé_close", "*_close"])
def test_a_pattern_is_compared_as_loosely_as_a_name(pattern, spelling):
    for form in ("NFC", "NFD"):
        assert NamePatterns([unicodedata.normalize(form, pattern)]).resembles(spelling)


@pytest.mark.parametrize("pattern", ["delete_repo*", "_delete_repo*", "Delete-Repo*", "DELETEREPO*", "d?lete_repo*"])
@pytest.mark.parametrize("spelling", ["deleterepo", "DeleteRepos", "delete__repo", "-delete.repo_now", "__deleteRepo"])
def test_separators_within_a_pattern_make_no_difference(pattern, spelling):
    assert NamePatterns([pattern]).resembles(spelling)


@pytest.mark.parametrize(
    ("pattern", "others"),
    [
        ("delete_*", ["deleted_items", "undelete_x", "delet_e"]),
        ("*_repo", ["monorepo", "repo"]),
        ("_*", ["delete", "d_elete", "DeleteRepo"]),
        ("*_*", ["delete"]),
        ("delete[_-]*", ["deleted"]),
        ("[!a-z]x", ["ax", "AX"]),
        ("[z-a]x", ["ax", "zx", "x"]),
        ("a?c", ["ac", "abbc"]),
    ],
)
def test_a_separator_beside_a_wildcard_has_to_be_there(pattern, others):
    assert [name for name in others if NamePatterns([pattern]).resembles(name)] == []


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("delete[_-]*", "Delete.Now"),
        ("admin[.]*", "ADMIN-drop"),
        ("[A-Z]rop", "drop"),
        ("[!_]x", "AX"),
        ("[!.]", "_"),
        ("_*", "-Hidden"),
        ("*_*", "deleteNow"),
        ("*a*b*", "xAyBz"),
        ("[]]x", "]x"),
        ("[", "["),
        ("\N{FIRE}", "\N{FIRE}"),
        ("\N{FIRE}", "\N{FIRE}\u200b"),
        ("count\u3164er", "counter"),
        ("stra\u00dfe*", "STRASSE_1"),
    ],
)
def test_wildcards_and_odd_signs_stand_for_names_in_any_spelling(pattern, name):
    assert NamePatterns([pattern]).resembles(name)


def test_letters_that_look_alike_are_alike():
    alike = NamePatterns(["counter", "exec_*"])
    for spelling in ("c\u043eunter", "\u0421\u039eUNTER".replace("\u039e", "O"), "\u03bdoid", "\u0435x\u0435c_all"):
        assert alike.resembles(spelling) is (spelling != "\u03bdoid")


def test_names_that_are_letters_apart_are_apart():
    one = NamePatterns(["list1", "fetch"])
    assert [name for name in ("listl", "list", "fetches", "prefetch", "l1st1", "") if one.resembles(name)] == []


def test_exactly_as_spelt_means_each_sign():
    exact = NamePatterns(["read_*", CAFE])
    assert [name for name in ("read_x", "Read_x", CAFE, "cafe\u0301", "read_x\n") if exact.has(name)] == [
        "read_x",
        CAFE,
        "read_x\n",
    ]


def test_no_patterns_stand_for_no_name():
    assert not NamePatterns([])
    assert not NamePatterns([]).has("")
    assert not NamePatterns([]).resembles("")
    assert not NamePatterns(["\u200b", "a"]).resembles("\u200c")
