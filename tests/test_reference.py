"""The reference pages in docs/ are what the settings' types say today."""

from pathlib import Path

import pytest

from strop.report.reference import pages

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(pages()))
def test_page_is_up_to_date(name):
    assert (FOLDER / name).read_text() == pages()[name], "out of date: run `make docs`"
