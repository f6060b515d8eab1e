"""Where knowledge comes from, and how far it is to be trusted."""

import pytest

from riglm.domain.knowledge.provenance import Origin, Table, TrustTier, trust_tier


@pytest.mark.parametrize(
    ("origin", "tier"), [("human", "green"), ("logged", "green"), ("tool", "amber"), ("model", "red")]
)
def test_thoughts_are_trusted_by_who_had_them(origin: str, tier: str):
    assert trust_tier(Table.THOUGHTS, Origin(origin)) == TrustTier(tier)


@pytest.mark.parametrize("origin", Origin)
@pytest.mark.parametrize("table", [Table.ENTITIES, Table.OBSERVATIONS])
def test_the_graph_is_trusted_whoever_wrote_it(table: Table, origin: Origin):
    assert trust_tier(table, origin) is TrustTier.GREEN


def test_ids_are_unique_over_all_tables():
    assert [table.public_id("1") for table in Table] == ["t:1", "e:1", "o:1"]
    assert [table.source_type for table in Table] == ["thought", "kg_entity", "kg_observation"]
