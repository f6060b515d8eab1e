import numpy as np
import pytest

from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever, probabilities
from riglm.domain.tool import ToolProfile
from tests.unit.domain.retrieval.samples import MODEL, SPIKE, context, vector, vectors

ONLINE = "I need to search for information online"
SPIKE_RETRIEVER = Retriever(SPIKE)
OTHERS = [
    ToolProfile(name=f"{verb}_{thing}", description=f"{verb.title()} a {thing} of the {owner}, by its {field}")
    for verb, field in (("get", "identifier"), ("delete", "title"), ("list", "owner"))
    for thing, owner in (("issue", "repository"), ("page", "workspace"), ("invoice", "customer"), ("flight", "airline"))
]


def _ranked(retriever: Retriever, asked: Context) -> list[str]:
    return [hit.name for hit in retriever.search(asked, 5).hits]


def test_scores_follow_the_candidates_and_lie_between_0_and_1():
    retriever = SPIKE_RETRIEVER.with_vectors(MODEL, vectors(SPIKE))
    forward = retriever.relevance(context(ONLINE), ["tavily_search", "echo", "get-sum"])
    backward = retriever.relevance(context(ONLINE), ["get-sum", "echo", "tavily_search"])
    assert np.array_equal(forward.combined, backward.combined[::-1])
    assert forward.combined.min() >= 0
    assert forward.combined.max() == 1


def test_vectors_of_another_model_are_not_compared():
    retriever = SPIKE_RETRIEVER.with_vectors(MODEL, vectors(SPIKE))
    other = Context(text=ONLINE, vector=vector("sum of two numbers"), model="another")
    assert np.array_equal(retriever.relevance(other).combined, SPIKE_RETRIEVER.relevance(other).combined)


def test_vectors_that_are_no_numbers_spoil_nothing():
    broken = {**vectors(SPIKE), "echo": np.full(64, np.nan, np.float32)}
    retriever = SPIKE_RETRIEVER.with_vectors(MODEL, broken)
    assert np.isfinite(retriever.relevance(context(ONLINE)).combined).all()
    nothing = Context(text=ONLINE, vector=np.full(64, np.inf, np.float32), model=MODEL)
    assert np.isfinite(retriever.relevance(nothing).combined).all()


@pytest.mark.parametrize("text", ["", "\x00\x01\x02", "😀" * 1000, "\ud800", "word " * 250_000, "a.\n" * 500_000])
def test_any_text_can_be_asked_for(text):
    retriever = SPIKE_RETRIEVER.with_vectors(MODEL, vectors(SPIKE))
    relevance = retriever.relevance(context(text))
    assert relevance.combined.shape == (len(SPIKE),)
    assert np.isfinite(relevance.combined).all()


def test_each_need_of_a_long_request_finds_its_tool():
    tools = [ToolProfile(name=f"noise{number}", description=f"budget report topic{number}") for number in range(30)]
    tools.append(ToolProfile(name="weather", description="forecast of the weather for a city"))
    request = "Write the budget report on every topic of this budget report. Also give the weather forecast."
    combined = Retriever(tools).relevance(context(request)).combined
    assert combined[-1] == combined.max()


def test_a_search_names_only_what_is_allowed():
    outcome = SPIKE_RETRIEVER.search(context(ONLINE), 5, allowed=lambda name: name != "tavily_search")
    assert "tavily_search" not in {*(hit.name for hit in outcome.hits), *outcome.near}


def test_a_search_says_why_and_names_near_misses():
    outcome = SPIKE_RETRIEVER.search(context("search online for the sum of information"), 1)
    assert [hit.name for hit in outcome.hits] == ["tavily_search"]
    assert "search" in outcome.hits[0].why
    assert outcome.near == ("get-sum",)


def test_a_search_abstains_when_no_tool_is_near():
    away = np.eye(64, dtype=np.float32)
    retriever = SPIKE_RETRIEVER.with_vectors(MODEL, {tool.name: away[row] for row, tool in enumerate(SPIKE)})
    outcome = retriever.search(Context(text="violin zeppelin", vector=away[-1], model=MODEL), 5)
    assert outcome.abstained
    assert outcome.hits == ()


def test_what_use_taught_is_found_though_no_description_says_so():
    pairs = LearnedPairs()
    retriever = Retriever(SPIKE, pairs=pairs)
    asked = context("violin zeppelin")
    assert retriever.search(asked, 5).abstained
    pairs.learn(asked, "get-sum", 1.0, scope="", at=0.0, description_hash=SPIKE[1].fingerprint)
    assert _ranked(retriever, asked) == ["get-sum"]
    assert "used in similar contexts" in retriever.search(asked, 1).hits[0].why


@pytest.mark.parametrize("ranking", [[], [0.0], [0.0, 0.0], [1e9, 0.0], [1.0, 1.0, 1.0]])
def test_probabilities_of_any_evidence_are_probabilities(ranking):
    nothing = np.zeros(len(ranking))
    found = probabilities(np.array(ranking), nothing, nothing)
    assert found.shape == (len(ranking),)
    assert ((found >= 0) & (found <= 1)).all()


def _mail_tools(server: str, count: int, more: str = "") -> list[ToolProfile]:
    return [
        ToolProfile(name=f"{server}__t{at}", server=server, bare_name=f"t{at}", description=f"Send a mail{more} {at}")
        for at in range(count)
    ]


def test_one_server_leaves_places_of_an_answer_to_others_that_fit():
    retriever = Retriever([*_mail_tools("boost", 15), *_mail_tools("post", 2, " by post"), *OTHERS])
    found = _ranked(retriever, Context(text="send a mail"))
    assert [name.partition("__")[0] for name in found[:2]] == ["boost", "boost"]
    assert {"post__t0", "post__t1"} <= set(found)


LETTER = "Sends a letter with text and attachments to one or several people"


@pytest.mark.parametrize(
    ("copy", "asked", "best"),
    [
        ("better", "a letter with attachments", "post__dispatch"),
        ("letter_with_attachments", "a letter with attachments", "boost__letter_with_attachments"),
    ],
)
def test_a_copy_comes_after_what_it_copies_unless_it_fits_clearly_better(copy, asked, best):
    original = ToolProfile(name="post__dispatch", server="post", bare_name="dispatch", description=LETTER)
    shorter = LETTER.replace("text and ", "")
    copied = ToolProfile(name=f"boost__{copy}", server="boost", bare_name=copy, description=shorter)
    assert _ranked(Retriever([original, copied, *OTHERS]), Context(text=asked))[0] == best
    assert _ranked(Retriever([copied, original, *OTHERS]), Context(text=asked))[0] == copied.name
