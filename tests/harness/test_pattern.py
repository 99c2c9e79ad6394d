"""harness.pattern: where the wrong elements are, in words."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
import torch

from harness.pattern import describe

PATTERNS = {
    "none": ["....", "...."],
    "all": ["xxxx", "xxxx"],
    "one element": ["....", "..x."],
    "last row": ["....", "xxxx"],
    "one row": ["....", "xxxx", "...."],
    "rows from 1": ["....", "xxxx", "xxxx"],
    "rows up to 1": ["xxxx", "xxxx", "...."],
    "last column": ["...x", "...x"],
    "one column": [".x..", ".x.."],
    "columns from 2": ["..xx", "..xx"],
    "columns up to 2": ["xxx.", "xxx."],
    "row stripe of period 2": ["xx", "..", "xx", "..", "xx", ".."],
    "column stripe of period 3": [".x..x..x.", ".x..x..x."],
    "last row, columns from 2": ["....", "..xx"],
    "rows from 1, last column": ["....", "...x", "...x"],
    "scattered": ["x..x", ".xx.", "x..."],
}


@pytest.mark.parametrize("words", PATTERNS)
def test_each_pattern_has_its_words(words):
    """A picture of a mask, and the description it gets."""
    mask = torch.tensor([[c == "x" for c in line] for line in PATTERNS[words]])
    assert words == describe(mask)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones(()), "all"),
        (torch.zeros(()), "none"),
        (torch.zeros(0, 3), "none"),
        (torch.ones(1), "all"),
        (torch.tensor([0, 0, 1]), "one element"),
        (torch.tensor([0, 1, 1]), "columns from 1"),
        (torch.tensor([[[0, 0], [0, 0]], [[1, 1], [1, 1]]]), "rows from 2"),
    ],
)
def test_other_ranks(mask, words):
    """Scalars, vectors, and three dimensions, whose first two are the rows."""
    assert words == describe(mask.bool())


def test_a_single_row_or_column_is_not_named():
    """With one row, which row it is says nothing."""
    assert "last column" == describe(torch.tensor([[False, False, True], [False, False, True]]))
    assert "columns from 1" == describe(torch.tensor([[False, True, True]]))
    assert "rows from 1" == describe(torch.tensor([[False], [True], [True]]))
