import pytest

# Checks that are shared between test modules should show the values of a failed assertion, as tests do.
pytest.register_assert_rewrite("contract")


@pytest.fixture(scope="module")
def one_thread():
    """Tiny models are slower with several threads, and much slower on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
