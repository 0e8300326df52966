"""What the project's management commands share: bad input gets one line and exit status 2."""

from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser


class OneLineCommand(BaseCommand):
    """A command that refuses wrong arguments in one line, without its usage before it."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)

        def refuse(message: str) -> NoReturn:
            sentence = f"{message[:1].upper()}{message[1:]} (see {subcommand} --help)."
            if getattr(parser, "called_from_command_line", False):
                parser.exit(2, f"{subcommand}: {sentence}\n")
            raise CommandError(sentence, returncode=2)

        parser.error = refuse  # type: ignore[method-assign]
        return parser
