"""`manage.py fairshare TREE.json`: the Fair Tree factor of every leaf of a tree file."""

import json
from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandParser

from allocator.core.fairshare import factors, read_tree
from allocator.core.scenario import parse_json
from config.commands import OneLineCommand

from ._files import refusing, source

EXAMPLE = """example:
  echo '{"tree": [{"name": "org", "parent": null, "shares": 1, "usage": 0},
                  {"name": "a", "parent": "org", "shares": 60, "usage": 30},
                  {"name": "b", "parent": "org", "shares": 40, "usage": 70}]}' > tree.json
  python manage.py fairshare tree.json
  {"factors": {"a": 1.000000, "b": 0.500000}}"""


class Command(OneLineCommand):
    help = "Print the Fair Tree factor of every leaf of a tree file. Needs no database."
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tree", metavar="TREE.json", help="the tree file")

    def handle(self, *args: Any, **options: Any) -> None:
        with refusing(options["tree"]):
            answer = factors(read_tree(parse_json(source(options["tree"]))))
        rows = ", ".join(
            f"{json.dumps(leaf)}: {float(factor):.6f}" for leaf, factor in sorted(answer.items())
        )
        self.stdout.write('{"factors": {' + rows + "}}")
