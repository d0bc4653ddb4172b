import pytest

# Checks that are shared between test modules should show the values of a failed assertion, as tests do.
pytest.register_assert_rewrite("contract")
