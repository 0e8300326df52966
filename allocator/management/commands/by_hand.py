"""`manage.py by_hand`: grant credits or adjust what is settled, or only show what it would do."""

from argparse import RawDescriptionHelpFormatter
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from allocator import steering
from budgets.access import Action, can, standing, visible
from budgets.models import Budget, Period
from budgets.refusals import credits
from config.clock import now
from config.commands import OneLineCommand
from ledger import services as ledger
from ledger.services import Effect, Kind, LedgerError

EXAMPLE = """examples:
  python manage.py by_hand grant orlo/science 250.5 --by ada --why "new project" --dry-run
  python manage.py by_hand adjust orlo/science/petrel -12.25 --by ada --why "miscounted"

Credits are GPU-hours at rate 1000. A grant below 0 takes credits back. An adjustment above 0
settles more, below 0 less. Exit status: 0 done or shown, 2 refused."""

FIGURES = ("granted", "settled", "spendable", "reserve")


class Command(OneLineCommand):
    help = "Grant credits to a budget, or adjust what it has settled, in the open period."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=[str(kind) for kind in Kind])
        parser.add_argument("budget", metavar="PATH", help="such as orlo/science")
        parser.add_argument("credits", metavar="CREDITS", help="such as 250.5 or -12.25")
        parser.add_argument("--by", metavar="USER", required=True, help="who decided it")
        parser.add_argument("--why", metavar="REASON", required=True, help="kept with the entry")
        parser.add_argument("--of", metavar="PERIOD", help="the closed period that is corrected")
        parser.add_argument("--key", help="the same key again is the same entry")
        parser.add_argument("--dry-run", action="store_true", help="show it, write nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._do(options)
        except LedgerError as error:
            raise _refuse(str(error)) from None

    def _do(self, options: dict[str, Any]) -> None:
        author, at, kind = _author(options["by"]), now(), Kind(options["kind"])
        budget, amount = _budget(author, options["budget"]), ledger.read_credits(options["credits"])
        of = _period(options["of"])
        if options["dry_run"]:
            ledger.note_by_hand(options["why"], of)
            effect = ledger.preview_by_hand(
                kind=kind,
                budget=budget,
                amount_mgpus=amount,
                now=at,
                of=of,
                held=standing(author),
            )
            self._show(effect)
            self.stdout.write("Nothing is written.")
            return
        written = steering.write_by_hand(
            kind=kind,
            budget=budget,
            amount_mgpus=amount,
            reason=options["why"],
            key=f"{author.pk}:{options['key'] or uuid4().hex}",
            author=author,
            now=at,
            of=of,
        )
        done = "Written" if written.anew else "Written before"
        self.stdout.write(f"{done}: entry {written.entry.pk}, {credits(amount)} credits.")

    def _show(self, effect: Effect) -> None:
        for one in effect.changes:
            pairs = {name: getattr(one, name) for name in FIGURES}
            says = (f"{name} {credits(a)} -> {credits(b)}" for name, (a, b) in pairs.items())
            self.stdout.write(f"{one.path}: {', '.join(says)}")
        if effect.beyond:
            self.stdout.write(f"It gives {credits(effect.beyond)} more than the parent's reserve.")


def _refuse(sentence: str) -> CommandError:
    return CommandError(sentence, returncode=2)


def _author(name: str) -> User:
    found = User.objects.filter(username=name, is_active=True).first()
    if found is None:
        raise _refuse(f"There is no active account {name!r}.")
    return found


def _budget(author: User, path: str) -> Budget:
    found = visible(author).filter(path=path).first()
    if found is None:
        raise _refuse(f"{author.username} sees no budget {path!r}.")
    if not can(author, Action.ADMINISTER, found):
        raise _refuse(f"{author.username} may see {path}, but not administer it.")
    return found


def _period(name: str | None) -> Period | None:
    if name is None:
        return None
    found = list(Period.objects.filter(name=name))
    if len(found) != 1:
        raise _refuse(f"There are {len(found)} periods called {name!r}.")
    return found[0]
