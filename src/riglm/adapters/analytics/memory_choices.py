"""Overrides, warm sets and tool catalogs kept in the memory of this process."""

import threading
from collections.abc import Sequence
from uuid import UUID

from riglm.domain.override import Override
from riglm.domain.tool_catalog import KEPT_SECONDS as CATALOG_KEPT_SECONDS
from riglm.domain.tool_catalog import ToolCatalog
from riglm.domain.warm_set import KEPT_SECONDS, WarmSet
from riglm.ports.overrides import OverridesPort
from riglm.ports.tool_catalogs import ToolCatalogsPort
from riglm.ports.warm_sets import WarmSetsPort


class InMemoryChoices(OverridesPort, WarmSetsPort, ToolCatalogsPort):
    """Keeps what people and epochs decided in plain dictionaries."""

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._overrides: dict[UUID, Override] = {}
        self._warm_sets: dict[tuple[str, str, str], WarmSet] = {}
        self._tool_catalogs: dict[tuple[str, str], ToolCatalog] = {}

    def put_override(self, override: Override) -> None:
        """Store an override, in place of the one with its id, and remove those that had expired when it was made."""
        with self._deciding:
            for kept in list(self._overrides.values()):
                if not kept.holds(override.created_at):
                    del self._overrides[kept.id]
            self._overrides[override.id] = override

    def list_overrides(self) -> Sequence[Override]:
        """All overrides, expired ones perhaps among them, in the order in which they were made."""
        with self._deciding:
            return sorted(self._overrides.values(), key=lambda each: (each.created_at, each.id))

    def delete_override(self, override_id: UUID) -> bool:
        """Remove an override; False when there is none with this id."""
        with self._deciding:
            return self._overrides.pop(override_id, None) is not None

    def get_warm_set(self, principal: str, client: str, profile: str) -> WarmSet | None:
        """Return the warm set of a principal, client and profile, None if there is none."""
        with self._deciding:
            return self._warm_sets.get((principal, client, profile))

    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        """Store a warm set in place of the one created at `replaces`, and return the one that is stored."""
        with self._deciding:
            for key, kept in list(self._warm_sets.items()):
                if kept.created_at < warm_set.created_at - KEPT_SECONDS:
                    del self._warm_sets[key]
            key = (warm_set.principal, warm_set.client, warm_set.profile)
            stored = self._warm_sets.setdefault(key, warm_set)
            if stored.created_at == replaces:
                stored = self._warm_sets[key] = warm_set
            return stored

    def forget_warm_sets(self) -> None:
        """Remove all warm sets."""
        with self._deciding:
            self._warm_sets.clear()

    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[ToolCatalog]:
        """Return the catalogs with these fingerprints."""
        with self._deciding:
            return [each for each in self._tool_catalogs.values() if each.fingerprint in fingerprints]

    def _put_tool_catalog(self, given: ToolCatalog) -> None:
        """Keep a catalog unless there is a newer one, and remove those that have not been refreshed for long."""
        with self._deciding:
            kept = self._tool_catalogs.get((given.fingerprint, given.variant))
            if kept is None or kept.updated_at <= given.updated_at:
                self._tool_catalogs[given.fingerprint, given.variant] = given
            latest = max(each.updated_at for each in self._tool_catalogs.values())
            for key, each in list(self._tool_catalogs.items()):
                if each.updated_at < latest - CATALOG_KEPT_SECONDS:
                    del self._tool_catalogs[key]
