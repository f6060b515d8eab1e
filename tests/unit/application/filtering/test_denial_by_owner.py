"""A denied tool is out of reach under every name that it has."""

import pytest

from riglm.application.filtering.filtering_service import FilteringService
from riglm.domain.naming import prefixed
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import IdentificationMethod, ProtocolEra, Session, Transport

OWN = "delete_every_record_of_the_production_customer_database_for_good_now"
SERVER = "averylongservername"
PUBLIC = prefixed(SERVER, OWN)
SESSION = Session(
    started_at=0.0, era=ProtocolEra.HANDSHAKE, transport=Transport.STDIO, method=IdentificationMethod.PROCESS
)


@pytest.mark.parametrize("denied", [OWN, "*_good_now", f"{SERVER}__{OWN}", PUBLIC])
def test_a_name_that_was_cut_for_clients_is_denied_by_the_whole_of_it(denied):
    filtering = FilteringService(
        FilteringSettings(denylist=(denied,)), owner=lambda name: (SERVER, OWN) if name == PUBLIC else ("", name)
    )
    assert filtering.denial(SESSION, PUBLIC)
    assert filtering.denial(SESSION, f"{SERVER}__other") is None


def test_a_tool_that_is_listed_bare_is_denied_by_its_name_with_the_server():
    filtering = FilteringService(FilteringSettings(denylist=("one__delete",)), owner=lambda name: ("one", name))
    assert filtering.denial(SESSION, "delete")
    assert filtering.denial(SESSION, "read") is None


@pytest.mark.parametrize("rules", [{"denylist": ("a",)}, {"allowlist": ("a",)}])
def test_a_call_without_a_name_is_refused_wherever_names_are_denied(rules):
    assert FilteringService(FilteringSettings(**rules)).denial(SESSION, "")
    assert FilteringService(FilteringSettings()).denial(SESSION, "") is None


def test_an_owner_that_is_known_for_sure_counts_more_than_what_was_remembered():
    filtering = FilteringService(FilteringSettings(denylist=("one__delete",)), owner=lambda name: ("", name))
    assert filtering.denial(SESSION, "delete") is None
    assert filtering.denial(SESSION, "delete", ("one", "delete"))
    assert filtering.denial(SESSION, "delete", ("two", "delete")) is None
