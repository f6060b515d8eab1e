"""What every knowledge store must do: subclass `KnowledgeContract` and give it an empty store."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from riglm.domain.knowledge import Embedding, Entity, Observation, Origin, Relation, Table, Thought, entity_text
from riglm.domain.session import uuid7
from riglm.ports.knowledge import KnowledgePort, Scope

EVERYBODY = Scope(owner=None)
MINE = Scope(owner="")


def an_embedding(*numbers: float, model: str = "minilm") -> Embedding:
    """A vector in this direction, of unit length."""
    vector = np.array(numbers, dtype=np.float32)
    return Embedding(model=model, vector=vector / np.linalg.norm(vector))


def a_thought(
    text: str,
    *numbers: float,
    owner: str = "",
    tags: Sequence[str] = (),
    private: bool = False,
    model: str = "minilm",
    origin: Origin = Origin.HUMAN,
    created_at: float = 1_000.0,
) -> Thought:
    """A thought; without numbers it has no vector."""
    embedding = an_embedding(*numbers, model=model) if numbers else None
    return Thought(
        id=uuid7(),
        owner=owner,
        text=text,
        origin=origin,
        created_at=created_at,
        tags=tuple(tags),
        is_private=private,
        embedding=embedding,
    )


def an_entity(name: str, *numbers: float, owner: str = "", kind: str = "person", text: str = "") -> Entity:
    """An entity; without numbers it has no vector."""
    embedding = an_embedding(*numbers) if numbers else None
    return Entity(
        id=uuid7(),
        owner=owner,
        name=name,
        kind=kind,
        text=text or f"{name} ({kind})",
        created_at=1_000.0,
        embedding=embedding,
    )


def an_observation(entity: Entity, text: str, *numbers: float, tags: Sequence[str] = ()) -> Observation:
    """Something that is known of an entity; without numbers it has no vector."""
    embedding = an_embedding(*numbers) if numbers else None
    return Observation(
        id=uuid7(),
        owner=entity.owner,
        entity=entity.name,
        text=text,
        created_at=1_000.0,
        tags=tuple(tags),
        embedding=embedding,
    )


def _knows(source: str, target: str, *, owner: str = "") -> Relation:
    return Relation(owner=owner, source=source, target=target, kind="knows")


class KnowledgeContract:
    """Override the fixture `knowledge` with a store that is open and empty."""

    @pytest.fixture
    def knowledge(self) -> Iterator[KnowledgePort]:
        """The store under test."""
        raise NotImplementedError

    def found(
        self,
        knowledge: KnowledgePort,
        *numbers: float,
        table: Table = Table.THOUGHTS,
        scope: Scope = MINE,
        most: int = 10,
        model: str = "minilm",
    ) -> list[str]:
        """The texts that a question in this direction finds, in order."""
        found = knowledge.nearest(table, an_embedding(*numbers, model=model), scope, most)
        return [candidate.text for candidate in found]

    def test_an_empty_store_finds_nothing(self, knowledge: KnowledgePort) -> None:
        """Every table can be asked before there is anything."""
        assert [self.found(knowledge, 1, 0, table=table) for table in Table] == [[], [], []]

    def test_the_most_similar_come_first_with_their_similarity(self, knowledge: KnowledgePort) -> None:
        """Cosines, exact to single precision."""
        knowledge.add_thoughts([a_thought("far", 0, 1), a_thought("near", 1, 0), a_thought("between", 1, 1)])
        found = knowledge.nearest(Table.THOUGHTS, an_embedding(1, 0), MINE, 10)
        assert [candidate.text for candidate in found] == ["near", "between", "far"]
        assert [candidate.score for candidate in found] == pytest.approx([1, 0.5**0.5, 0], abs=1e-6)

    def test_no_more_are_given_than_were_asked_for(self, knowledge: KnowledgePort) -> None:
        """The best of them, and none when none are wanted."""
        knowledge.add_thoughts([a_thought(f"{number}", 1, number) for number in range(20)])
        assert self.found(knowledge, 1, 0, most=3) == ["0", "1", "2"]
        assert self.found(knowledge, 1, 0, most=0) == []

    def test_it_finds_exactly_what_comparing_with_all_finds(self, knowledge: KnowledgePort) -> None:
        """Also among hundreds that are almost alike."""
        numbers = np.random.default_rng(7).normal(size=(600, 32)).astype(np.float32)
        numbers[:300] = numbers[0] + 0.05 * numbers[:300]
        thoughts = [a_thought(f"{place}", *row) for place, row in enumerate(numbers.tolist())]
        knowledge.add_thoughts(thoughts)
        asked = an_embedding(*numbers[5].tolist())
        scores = {each.text: float(each.embedding.vector @ asked.vector) for each in thoughts if each.embedding}
        found = knowledge.nearest(Table.THOUGHTS, asked, MINE, 40)
        assert [candidate.score for candidate in found] == pytest.approx(sorted(scores.values())[:-41:-1], abs=1e-6)

    def test_vectors_of_other_models_and_lengths_are_not_compared(self, knowledge: KnowledgePort) -> None:
        """Neither those of another model, nor of other dimensions under its name, nor pieces without any."""
        knowledge.add_thoughts(
            [
                a_thought("mine", 1, 0),
                a_thought("of another model", 1, 0, model="bge"),
                a_thought("of other dimensions", 1, 0, 0),
                a_thought("without a vector"),
            ]
        )
        assert self.found(knowledge, 1, 0) == ["mine"]
        assert self.found(knowledge, 1, 0, 0) == ["of other dimensions"]
        assert self.found(knowledge, 1, 0, model="bge") == ["of another model"]

    def test_an_owner_is_given_its_own_alone(self, knowledge: KnowledgePort) -> None:
        """Unless everybody's is asked for."""
        knowledge.add_thoughts([a_thought("mine", 1, 0), a_thought("hers", 1, 0.1, owner="alice")])
        assert self.found(knowledge, 1, 0) == ["mine"]
        assert self.found(knowledge, 1, 0, scope=Scope(owner="alice")) == ["hers"]
        assert self.found(knowledge, 1, 0, scope=Scope(owner="bob")) == []
        assert self.found(knowledge, 1, 0, scope=EVERYBODY) == ["mine", "hers"]

    def test_private_thoughts_are_given_when_asked_for(self, knowledge: KnowledgePort) -> None:
        """And not otherwise."""
        knowledge.add_thoughts([a_thought("open", 1, 0), a_thought("private", 1, 0.1, private=True)])
        assert self.found(knowledge, 1, 0) == ["open"]
        assert self.found(knowledge, 1, 0, scope=Scope(owner="", include_private=True)) == ["open", "private"]

    def test_a_thought_that_turns_out_to_be_private_is_so_from_then_on(self, knowledge: KnowledgePort) -> None:
        """And being told once more without that makes it no less so."""
        knowledge.add_thoughts([a_thought("the plan", 1, 0)])
        assert self.found(knowledge, 1, 0) == ["the plan"]
        knowledge.add_thoughts([a_thought("The  plan", private=True)])
        knowledge.add_thoughts([a_thought("the plan", 1, 0)])
        assert self.found(knowledge, 1, 0) == []
        assert self.found(knowledge, 1, 0, scope=Scope(owner="", include_private=True)) == ["the plan"]

    def test_a_thought_that_comes_again_is_seen_by_no_more_and_trusted_no_better(
        self, knowledge: KnowledgePort
    ) -> None:
        """It has the tags of all that were alike, and the origin that is trusted least; of each it is told whether."""
        added = [
            knowledge.add_thoughts([a_thought("zebra", 1, 0, tags=["b"]), a_thought("plain", 0, 1)]),
            knowledge.add_thoughts([a_thought("Zebra", tags=["a"], origin=Origin.MODEL), a_thought("plain")]),
            knowledge.add_thoughts([a_thought("zebra", 1, 0, tags=["a"])]),
            knowledge.add_thoughts([a_thought("new"), a_thought("NEW", tags=["c"]), a_thought("new", private=True)]),
        ]
        assert added == [(2, 0), (0, 1), (0, 0), (1, 0)]
        everything = knowledge.newest(Table.THOUGHTS, Scope(owner="", include_private=True), 9)
        assert {each.text: (each.tags, getattr(each, "origin", None)) for each in everything} == {
            "zebra": (("a", "b"), Origin.MODEL),
            "plain": ((), Origin.HUMAN),
            "new": (("c",), Origin.HUMAN),
        }
        for tag in ("a", "b"):
            assert self.found(knowledge, 1, 0, scope=Scope(owner="", exclude_tags=frozenset(tag))) == ["plain"]
        assert knowledge.ids(Table.THOUGHTS, Scope(owner="", include_tags=frozenset("c"))) == []

    def test_pieces_that_are_all_alike_are_found_as_any_others(self, knowledge: KnowledgePort) -> None:
        """However many of them there are."""
        knowledge.add_thoughts([a_thought(f"{number}", 1, 0) for number in range(700)])
        found = self.found(knowledge, 1, 0, most=5)
        assert len(set(found)) == 5

    def test_tags_include_and_exclude(self, knowledge: KnowledgePort) -> None:
        """One of those to include is enough; one of those to exclude as well."""
        tagged = [("red", ["a"]), ("green", ["a", "b"]), ("blue", ["c"]), ("plain", [])]
        knowledge.add_thoughts([a_thought(text, 1, place, tags=tags) for place, (text, tags) in enumerate(tagged)])

        def with_tags(include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[str]:
            scope = Scope(owner="", include_tags=frozenset(include), exclude_tags=frozenset(exclude))
            return self.found(knowledge, 1, 0, scope=scope)

        assert with_tags(["a", "c"]) == ["red", "green", "blue"]
        assert with_tags(exclude=["b"]) == ["red", "blue", "plain"]
        assert with_tags(["a"], ["b"]) == ["red"]
        assert with_tags(["unknown"]) == []

    def test_the_same_thought_is_kept_once_for_each_owner(self, knowledge: KnowledgePort) -> None:
        """However it is spaced and capitalised."""
        assert knowledge.add_thoughts([a_thought("Tea  at five", 1, 0), a_thought("tea at five", 1, 0)]).new == 1
        assert (
            knowledge.add_thoughts([a_thought("tea at five", 1, 0), a_thought("tea at five", 1, 0, owner="a")]).new == 1
        )
        assert self.found(knowledge, 1, 0) == ["Tea  at five"]

    def test_a_vector_that_was_missing_is_taken_from_the_same_thought(self, knowledge: KnowledgePort) -> None:
        """It is found from then on; one without a vector takes none away."""
        knowledge.add_thoughts([a_thought("tea")])
        assert self.found(knowledge, 1, 0) == []
        assert knowledge.add_thoughts([a_thought("tea", 1, 0)]).new == 0
        knowledge.add_thoughts([a_thought("tea")])
        assert self.found(knowledge, 1, 0) == ["tea"]

    def test_what_is_added_after_a_question_is_found_by_the_next(self, knowledge: KnowledgePort) -> None:
        """As is what changed, and what is gone is not."""
        first, second = a_thought("first", 1, 0), a_thought("second", 0, 1)
        knowledge.add_thoughts([first])
        assert self.found(knowledge, 1, 0) == ["first"]
        knowledge.add_thoughts([second])
        assert self.found(knowledge, 1, 0) == ["first", "second"]
        knowledge.set_vectors(Table.THOUGHTS, [(second.id, an_embedding(1, 0)), (first.id, an_embedding(0, 1))])
        assert self.found(knowledge, 1, 0) == ["second", "first"]
        assert knowledge.forget(Table.THOUGHTS, [second.id], "") == 1
        assert self.found(knowledge, 1, 0) == ["first"]

    def test_the_graph_is_asked_table_by_table(self, knowledge: KnowledgePort) -> None:
        """Entities and observations are not mixed, and come as a tool wrote them."""
        alice = an_entity("Alice", 1, 0)
        knowledge.add_entities([alice])
        knowledge.add_observations([an_observation(alice, "likes tea", 1, 0, tags=["taste"])])
        assert self.found(knowledge, 1, 0, table=Table.ENTITIES) == ["Alice (person)"]
        observations = knowledge.nearest(Table.OBSERVATIONS, an_embedding(1, 0), MINE, 10)
        assert [(each.text, each.origin, each.table) for each in observations] == [
            ("likes tea", Origin.TOOL, Table.OBSERVATIONS)
        ]

    def test_an_entity_that_is_told_anew_takes_the_new_words(self, knowledge: KnowledgePort) -> None:
        """Its id stays, and its old vector does not outlive the words that it was of."""
        first = an_entity("Alice", 1, 0)
        assert knowledge.add_entities([first]).new == 1
        assert knowledge.add_entities([an_entity("Alice", text="Alice works at Acme")]).new == 0
        [entity] = knowledge.newest(Table.ENTITIES, MINE, 10)
        assert (entity.id, entity.text) == (first.id, "Alice works at Acme")
        assert self.found(knowledge, 1, 0, table=Table.ENTITIES) == []
        assert [each.id for each in knowledge.without_vector(Table.ENTITIES, "minilm", 10)] == [first.id]

    def test_the_same_observation_and_relation_are_kept_once(self, knowledge: KnowledgePort) -> None:
        """Of one entity; another one may have it as well."""
        alice, bob = an_entity("Alice"), an_entity("Bob")
        knowledge.add_entities([alice, bob])
        assert knowledge.add_observations([an_observation(alice, "tea"), an_observation(bob, "tea")]).new == 2
        assert knowledge.add_observations([an_observation(alice, "Tea")]).new == 0
        knows = Relation(owner="", source="Alice", target="Bob", kind="knows")
        assert knowledge.add_relations([knows, knows]) == 1
        assert knowledge.add_relations([knows]) == 0

    def test_an_entity_that_is_forgotten_takes_along_what_hangs_on_it(self, knowledge: KnowledgePort) -> None:
        """Its observations and relations, and nobody else's."""
        alice, bob = an_entity("Alice", 1, 0), an_entity("Bob", 1, 0)
        knowledge.add_entities([alice, bob])
        knowledge.add_observations([an_observation(alice, "tea", 1, 0), an_observation(bob, "coffee", 1, 0)])
        knowledge.add_relations([Relation(owner="", source="Alice", target="Bob", kind="knows")])
        assert knowledge.forget(Table.ENTITIES, [alice.id], "") == 1
        assert self.found(knowledge, 1, 0, table=Table.OBSERVATIONS) == ["coffee"]
        assert knowledge.counts("", "minilm").relations == 0

    def test_an_entity_that_is_forgotten_is_not_named_by_its_neighbours(self, knowledge: KnowledgePort) -> None:
        """Their words are written anew from what is left, and are found by no vector of the old ones."""
        alice, bob, carol = an_entity("Alice", 1, 0), an_entity("Bob", 1, 0.1), an_entity("Carol", 1, 0.2)
        hers = an_entity("Bob", 1, 0, owner="alice", text="Bob (person). Alice knows Bob.")
        knows = [("Alice", "Bob"), ("alice", "Carol"), ("Bob", "Carol")]
        told = {
            each.name: entity_text(each.name, each.kind, [_knows(*ends) for ends in knows if each.name in ends])
            for each in (alice, bob, carol)
        }
        knowledge.add_relations([*(_knows(*ends) for ends in knows), _knows("Alice", "Bob", owner="alice")])
        knowledge.add_entities([*(replace(each, text=told[each.name]) for each in (alice, bob, carol)), hers])
        assert len(self.found(knowledge, 1, 0, table=Table.ENTITIES)) == 3
        knowledge.forget(Table.ENTITIES, [alice.id], "")
        left = {each.name: each.text for each in knowledge.entities_named("", ["Alice", "Bob", "Carol"])}
        assert left == {"Bob": "Bob (person). Bob knows Carol.", "Carol": "Carol (person). Bob knows Carol."}
        assert self.found(knowledge, 1, 0, table=Table.ENTITIES) == []
        assert {each.id for each in knowledge.without_vector(Table.ENTITIES, "minilm", 10)} == {bob.id, carol.id}
        assert [each.text for each in knowledge.entities_named("alice", ["Bob"])] == [hers.text]

    def test_entities_that_are_forgotten_together_leave_nothing_of_each_other(self, knowledge: KnowledgePort) -> None:
        """And what stands in no relation to them keeps its vector."""
        names = ("Alice", "Bob", "Carol", "Dave")
        entities = [an_entity(name, 1, place) for place, name in enumerate(names)]
        knowledge.add_relations([_knows("Alice", "Bob"), _knows("Bob", "Carol")])
        knowledge.add_entities(entities)
        assert knowledge.forget(Table.ENTITIES, [each.id for each in entities[:2]], None) == 2
        left = {each.name: each.text for each in knowledge.entities_named("", names)}
        assert left == {"Carol": "Carol (person).", "Dave": "Dave (person)"}
        assert self.found(knowledge, 1, 0, table=Table.ENTITIES) == ["Dave (person)"]
        assert knowledge.counts("", "minilm").relations == 0

    def test_only_an_owner_forgets_what_is_its_own(self, knowledge: KnowledgePort) -> None:
        """Or whoever speaks for everybody."""
        hers, his = a_thought("hers", 1, 0, owner="alice"), a_thought("his", 1, 0, owner="bob")
        knowledge.add_thoughts([hers, his])
        ids: list[UUID] = [hers.id, his.id]
        assert knowledge.forget(Table.THOUGHTS, ids, "alice") == 1
        assert self.found(knowledge, 1, 0, scope=EVERYBODY) == ["his"]
        assert knowledge.forget(Table.THOUGHTS, ids, None) == 1

    def test_it_counts_whose_it_is(self, knowledge: KnowledgePort) -> None:
        """And how much is without a vector of the model."""
        alice = an_entity("Alice", owner="alice")
        knowledge.add_thoughts([a_thought("a", 1, 0), a_thought("b"), a_thought("c", 1, 0, model="bge")])
        knowledge.add_entities([alice])
        mine, all_ = knowledge.counts("", "minilm"), knowledge.counts(None, "minilm")
        assert (mine.thoughts, mine.entities, mine.without_vector) == (3, 0, 2)
        assert (all_.thoughts, all_.entities, all_.without_vector) == (3, 1, 3)

    def test_the_newest_come_first_without_private_ones(self, knowledge: KnowledgePort) -> None:
        """Within the scope, as many as are wanted."""
        knowledge.add_thoughts(
            [
                a_thought(f"{at}", created_at=float(at), private=at == 3, tags=["even"] * (at % 2 == 0))
                for at in range(6)
            ]
        )
        assert [each.text for each in knowledge.newest(Table.THOUGHTS, MINE, 3)] == ["5", "4", "2"]
        even = Scope(owner="", include_tags=frozenset(["even"]))
        assert [each.text for each in knowledge.newest(Table.THOUGHTS, even, 9)] == ["4", "2", "0"]

    def test_entities_are_found_by_name(self, knowledge: KnowledgePort) -> None:
        """However it is spaced and capitalised, and an owner's alone."""
        knowledge.add_entities([an_entity("Ada Byron", 1, 0), an_entity("Bob"), an_entity("Ada Byron", owner="bob")])
        found = knowledge.entities_named("", ["ada  byron", "Carol"])
        assert [(each.owner, each.name, each.embedding) for each in found] == [("", "Ada Byron", None)]
        assert knowledge.entities_named("", []) == []

    def test_entities_are_told_anew_by_the_relations_that_there_are(self, knowledge: KnowledgePort) -> None:
        """An owner's alone, however a name is spelt; who is told as before keeps the vector."""
        bob = replace(an_entity("Bob", 1, 0), text="Bob (person).")
        knowledge.add_entities([an_entity("Ada", 1, 0), bob, an_entity("Ada", 1, 0, owner="bob")])
        knowledge.add_relations([_knows("ada", "Carol")])
        assert knowledge.refresh_entity_texts("", ["ADA", "Bob", "Carol"]) == 1
        assert knowledge.refresh_entity_texts("", ["ADA", "Bob", "Carol"]) == 0
        told = [(each.owner, each.text) for each in knowledge.without_vector(Table.ENTITIES, "minilm", 10)]
        assert told == [("", "Ada (person). ada knows Carol.")]

    def test_relations_are_found_by_either_end(self, knowledge: KnowledgePort) -> None:
        """Each once, an owner's alone, and whether or not there are such entities."""
        knows = Relation(owner="", source="Ada", target="Bob", kind="knows")
        self_ = Relation(owner="", source="Bob", target="Bob", kind="minds")
        knowledge.add_relations([knows, self_, Relation(owner="x", source="Ada", target="Eve", kind="knows")])
        assert knowledge.relations_of("", ["ada"]) == [knows]
        assert set(knowledge.relations_of("", ["Bob", "Ada"])) == {knows, self_}
        assert knowledge.relations_of("", ["Eve"]) == []

    def test_what_a_scope_holds_is_told_by_its_ids(self, knowledge: KnowledgePort) -> None:
        """Private ones and tags as everywhere."""
        open_, private, hers = (
            a_thought("open", tags=["a"]),
            a_thought("private", private=True),
            a_thought("hers", owner="alice"),
        )
        knowledge.add_thoughts([open_, private, hers])
        assert set(knowledge.ids(Table.THOUGHTS, MINE)) == {open_.id}
        assert set(knowledge.ids(Table.THOUGHTS, Scope(owner="", include_private=True))) == {open_.id, private.id}
        assert set(knowledge.ids(Table.THOUGHTS, Scope(owner=None, include_tags=frozenset("a")))) == {open_.id}
        assert set(knowledge.ids(Table.THOUGHTS, Scope(owner=None, exclude_tags=frozenset("a")))) == {hers.id}

    def test_all_of_an_owner_s_is_forgotten_at_once(self, knowledge: KnowledgePort) -> None:
        """Also relations between nobody who is known; what is another's stays."""
        for owner in ("", "alice"):
            ada = an_entity("Ada", 1, 0, owner=owner)
            knowledge.add_thoughts([a_thought("a", 1, 0, owner=owner)])
            knowledge.add_entities([ada])
            knowledge.add_observations([an_observation(ada, "tea", 1, 0)])
            knowledge.add_relations([Relation(owner=owner, source="X", target="Y", kind="knows")])
        assert self.found(knowledge, 1, 0) == ["a"]
        assert knowledge.forget_owner("") == 3
        assert self.found(knowledge, 1, 0) == []
        left = knowledge.counts(None, "minilm")
        assert (left.thoughts, left.entities, left.observations, left.relations) == (1, 1, 1, 1)
        assert knowledge.forget_owner(None) == 3
        assert knowledge.counts(None, "minilm").relations == 0

    @pytest.mark.parametrize("text", ["\x00", "\ud800", "ﬁ\u200b\u202e", "'; DROP TABLE thought; --", "😀" * 500])
    def test_odd_texts_come_back_as_they_were(self, knowledge: KnowledgePort, text: str) -> None:
        """As texts and as tags, for any of them may be found by it."""
        knowledge.add_thoughts([a_thought(text, 1, 0, tags=[text])])
        scope = Scope(owner="", include_tags=frozenset([text]))
        assert self.found(knowledge, 1, 0, scope=scope) == [text]
