"""What a newcomer reads first: links lead somewhere, commands exist, no page is left out."""

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.once


def test_every_link_and_picture_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 25
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_table_has_every_page_of_the_documentation() -> None:
    table = "\n".join(line for line in README.splitlines() if line.startswith("| [docs/"))
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert pages - set(re.findall(r"\((docs/\w+\.md)\)", table)) == set()


def test_its_management_commands_and_example_files_exist() -> None:
    asked = re.findall(r"\./run manage (\w+)([^\n]*)", README)
    assert len(asked) > 5
    assert {name for name, _ in asked} <= set(get_commands())
    files = re.findall(r"docs/examples/\w+\.\w+", README)
    assert [file for file in files if not (ROOT / file).exists()] == []
