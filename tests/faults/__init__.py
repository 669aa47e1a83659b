"""Faults on real servers: what breaks for real must lose nothing and do nothing twice."""

import pytest

pytest.register_assert_rewrite("tests.faults.client_view", "tests.faults.world")
