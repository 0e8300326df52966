"""docs/testing.md: every test that it names is there."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "testing.md"
NAMED = sorted(set(re.findall(r"`((?:core/)?test_\w+\.py)(?:::(\w+))?`", PAGE.read_text())))


def names_in(path: Path) -> set[str]:
    """Return the names of a file's tests and classes of tests."""
    nodes = ast.walk(ast.parse(path.read_text()))
    names = {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    return {name for name in names if name.lower().startswith("test")}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_is_named_is_there(file: str, name: str) -> None:
    found = names_in(TESTS / file)
    assert name in found if name else found


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    unnamed = [row for row in rows if "`" not in row and row.rsplit("| ", 1)[1] != "test |"]
    assert unnamed == ["| row | rule | tests |"]
    assert len(NAMED) > 100


def test_a_test_that_is_gone_would_be_noticed() -> None:
    assert "test_what_is_named_is_there" in names_in(Path(__file__))
    assert "names_in" not in names_in(Path(__file__))
