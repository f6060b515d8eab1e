"""Kinds of work: clusters of the recorded sessions."""

from riglm.application.control.thread_bridge import CachedQueries
from riglm.domain.schemas.control_api import SessionClusterEntry, SessionClusters
from riglm.ports.analytics import AnalyticsPort


class SessionClusterQueries:
    """Clusters the latest sessions when a client asks; the answer is reused according to what it costs."""

    def __init__(self, counting: CachedQueries) -> None:
        self._counting = counting

    async def entries(self, limit: int) -> SessionClusters:
        """The `limit` most frequent kinds of work."""
        found = await self._counting.counted(("clusters",), _cluster_recorded)
        return found.model_copy(update={"clusters": found.clusters[:limit]})


def _cluster_recorded(store: AnalyticsPort) -> SessionClusters:
    from riglm.domain import session_clusters as domain  # noqa: PLC0415  # numpy takes a tenth of a second to import

    recorded = store.list_training_sessions(domain.MAX_CLUSTERED_SESSIONS)
    contexts = store.get_context_vectors([session.id for session in recorded])
    profiles = [
        domain.SessionProfile(
            calls=[domain.ClusteredCall(call.tool, call.upstream) for call in session.successes],
            context=contexts.get(session.id),
        )
        for session in recorded
    ]
    found = domain.describe_clusters(profiles, domain.cluster_sessions(profiles))
    entries = map(SessionClusterEntry.model_validate, found)
    return SessionClusters(sessions=len(profiles), total=len(found), clusters=tuple(entries))
