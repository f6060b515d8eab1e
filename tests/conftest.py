"""What all tests share."""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("riglm.testing")

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", parent=settings.get_profile("same"), derandomize=False, max_examples=2000)
settings.load_profile("same")
