"""Every kind of record, as hypothesis makes it: whatever a field may hold."""

import numpy as np
from hypothesis import strategies as st

from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.learning import LearnedPair, PairSource
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.tool import StoredToolCatalog
from riglm.ports.analytics import LearnedPairsDeleted, SessionClosed

words = st.text(st.characters(exclude_categories=()), max_size=12)  # NUL and lone surrogates among them
names = st.lists(words, max_size=4).map(tuple)
times = st.floats(allow_nan=False)
counts = st.integers(-(2**63), 2**63 - 1)
vectors = st.lists(st.floats(width=32, allow_nan=False), max_size=8).map(lambda row: np.array(row, dtype=np.float32))

invocations = st.builds(
    ToolInvocation,
    id=st.uuids(),
    session_id=st.uuids(),
    tool=words,
    upstream=words,
    timestamp=times,
    duration_ms=times,
    success=st.booleans(),
    sequence_number=counts,
    arguments_hash=words,
    arguments=st.none() | words,
    error_kind=st.none() | st.sampled_from(ErrorKind),
    error_code=st.none() | counts,
    found=st.sampled_from(DiscoveryMethod),
)
exposures = st.builds(
    Exposure,
    id=st.uuids(),
    session_id=st.uuids(),
    timestamp=times,
    shown=names,
    hidden=names,
    predictor=words,
    reason=words,
    mode=st.sampled_from(["enforce", "shadow", "off"]),
    surface=words,
    tokens_shown=counts,
    tokens_hidden=counts,
    tokens_own=counts,
)
sessions = st.builds(
    Session,
    id=st.uuids(),
    started_at=times,
    ended_at=st.none() | times,
    era=st.sampled_from(ProtocolEra),
    transport=st.sampled_from(Transport),
    method=st.sampled_from(IdentificationMethod),
    client=st.builds(ClientInfo, name=words, version=words),
    client_id=words,
    principal=words,
    protocol_version=words,
    keys=st.dictionaries(words, words, max_size=3),
    metadata=st.dictionaries(words, words, max_size=3),
    tools_available=names,
    sequence=counts,
)
ends = st.builds(SessionClosed, session_id=st.uuids(), ended_at=times)
pairs = st.builds(
    LearnedPair,
    id=st.uuids(),
    scope=words,
    tool=words,
    model=words,
    vector=vectors,
    confidence=times,
    uses=counts,
    updated_at=times,
    description_hash=words,
    terms=st.lists(counts, max_size=4).map(tuple),
    session_id=st.none() | st.uuids(),
    teacher=st.none() | st.builds(PairSource, client_id=words, client_name=words, principal=words),
)
forgotten = st.builds(LearnedPairsDeleted, ids=st.lists(st.uuids(), max_size=4).map(tuple))
catalogs = st.builds(
    StoredToolCatalog,
    fingerprint=words,
    variant=words,
    server=words,
    capabilities=st.binary(max_size=8),
    instructions=words,
    tools=st.binary(max_size=8),
    updated_at=times,
)

KINDS = {
    "invocation": invocations,
    "exposure": exposures,
    "session": sessions,
    "session_closed": ends,
    "learned_pair": pairs,
    "pairs_forgotten": forgotten,
    "tool_catalog": catalogs,
}
records = st.one_of(*KINDS.values())
