"""What all tests share."""

import pytest

pytest.register_assert_rewrite("riglm.testing")
