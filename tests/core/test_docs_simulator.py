"""docs/simulator.md says what the command prints and takes."""

import re
from io import StringIO
from pathlib import Path

from django.core.management import call_command

from allocator.core.simulate import POLICIES
from allocator.core.traces import REQUIRED
from allocator.management.commands.simulate import Command

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "simulator.md").read_text()


def test_the_example_is_what_the_command_prints() -> None:
    (block,) = re.findall(r"<!-- simulate -->\n(.*?)<!-- /simulate -->", PAGE, re.S)
    lines = [line.removeprefix("    ") for line in block.strip().splitlines()]
    command, printed = lines[0].split()[2:], "\n".join(lines[1:]).strip()
    out = StringIO()
    call_command(*command, stdout=out, stderr=StringIO())
    assert out.getvalue().strip() == printed.replace("    python", "python")


def test_every_policy_option_and_column_is_explained() -> None:
    for policy in POLICIES:
        assert f"\n| `{policy}` |" in PAGE
    parser = Command().create_parser("manage.py", "simulate")
    ours = {
        name
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--") and action.dest not in DJANGO
    }
    assert {name for name in ours if f"`{name}" not in PAGE} == set()
    assert all(f"`{column}`" in PAGE for column in REQUIRED)


DJANGO = {
    *("help", "version", "verbosity", "settings", "pythonpath", "traceback", "no_color"),
    *("force_color", "skip_checks"),
}
