import pytest

from tests.unit.application.scripted_prediction import ALL, a_catalogue


@pytest.fixture
def catalog():
    """Thirty tools."""
    return a_catalogue(*ALL)
