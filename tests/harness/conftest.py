"""Calls here are small: a team of threads costs more than it does, most of all beside other workers."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """As the sandbox's children run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
