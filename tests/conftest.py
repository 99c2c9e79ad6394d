"""The plugin under test is the one these tests run with, installed or not."""

import pytest

pytest_plugins = ["harness.pytest_plugin", "tests.failures"]


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """As the sandbox's children run: calls are small, and a team of threads costs more than it does."""
    import torch  # not before the plugin has chosen a GPU

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items):
    """Long tests first: a process that gets them last ends minutes after the others."""
    items.sort(key=lambda item: "planted" not in item.path.parts)
