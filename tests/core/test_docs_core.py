"""The pages on the allocator say what the code does: numbers are recomputed, words are complete."""

from fractions import Fraction
from pathlib import Path

from allocator.core.fairshare import ShareNode, factors
from allocator.core.plan import Rule, Status

DOCS = Path(__file__).parents[2] / "docs"


def _table(page: str, first: str) -> list[list[str]]:
    """The body of the table whose first heading is `first`."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    body = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        body.append([cell.strip() for cell in line.strip("|").split("|")])
    return body


def test_the_worked_table_of_fair_tree_is_recomputed() -> None:
    rows = _table("fairshare.md", "budget")
    nodes = {row[0]: row for row in rows}
    inner = {row[1] for row in rows}
    answer = factors(
        [
            ShareNode(name, parent or None, int(shares), 0 if name in inner else int(usage))
            for name, parent, shares, usage, *_ in rows
        ]
    )
    assert {name: Fraction(row[7]) for name, row in nodes.items() if row[7]} == answer
    for name, parent, shares, usage, of_shares, of_usage, level, _ in rows:
        siblings = [row for row in rows if row[1] == parent]
        if name in inner:
            assert int(usage) == sum(int(row[3]) for row in rows if row[1] == name)
        share = Fraction(int(shares), sum(int(row[2]) for row in siblings))
        used = Fraction(int(usage), sum(int(row[3]) for row in siblings))
        assert (Fraction(of_shares), Fraction(of_usage)) == (share, used)
        if used:
            assert Fraction(level) == share / used
        else:
            assert level == ("infinite" if share else "0")


def test_every_status_is_explained() -> None:
    assert {row[0].strip("`") for row in _table("allocator.md", "status")} == set(Status)


def test_every_reason_is_explained() -> None:
    assert {row[0].strip("`") for row in _table("allocator.md", "rule")} == set(Rule)


def test_every_file_of_the_core_has_its_line() -> None:
    listed = {
        name.strip(" `") for row in _table("allocator.md", "file") for name in row[0].split(",")
    }
    core = DOCS.parent / "allocator" / "core"
    files = {file.stem for file in core.glob("*.py")} - {"__init__", "solve", "items"}
    files |= {package.parent.name for package in core.glob("*/__init__.py")}
    assert listed == files
