"""The names and colours of budgets on a page, and which of them the reader may see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from budgets import hues
from budgets.access import Person, Standing, standing
from budgets.hues import Hue
from budgets.models import Budget

SHADES = 3  # tones of a program's hue that tell its projects apart


@dataclass(frozen=True)
class Program:
    """A child of the organisation, as bars and legends name it."""

    path: str
    name: str
    hue: Hue


@dataclass(frozen=True)
class Names:
    """Every budget by path, with the reader's standing. Two queries."""

    held: Standing
    budgets: Mapping[str, Budget]
    hue: Mapping[str, Hue]

    @classmethod
    def load(cls, user: Person) -> Names:
        rows = {budget.path: budget for budget in Budget.objects.order_by("pk")}
        return cls(standing(user), rows, hues.of_budgets(rows.values()))

    def sees(self, path: str) -> bool:
        return self.held.sees(path)

    def name(self, path: str) -> str:
        """The budget's name; its slug if there is none by that path any more."""
        budget = self.budgets.get(path)
        return budget.name if budget else path.rpartition("/")[2]

    def hue_of(self, path: str) -> Hue:
        return self.hue.get(path, 0)

    def program(self, path: str) -> str:
        """Path of the program that a budget belongs to; the root is its own."""
        return "/".join(path.split("/")[:2])

    def programs(self) -> Iterator[Program]:
        """Programs that the reader may see something of, oldest first."""
        for path, budget in self.budgets.items():
            if path.count("/") == 1 and (budget.archived_at is None) and self._touches(path):
                yield Program(path, budget.name, self.hue_of(path))

    def shades(self) -> dict[str, int]:
        """Which tone each project has, as `shade` says, all at once."""
        found: dict[str, int] = {}
        count: dict[str, int] = {}
        for path in self.budgets:
            if path.count("/") > 1:
                program = self.program(path)
                found[path] = count.get(program, 0) % SHADES
                count[program] = count.get(program, 0) + 1
        return found

    def shade(self, path: str) -> int:
        """Which tone a project has among those of its program, 0 to 2."""
        return self._shades.get(path, 0)

    @cached_property
    def _shades(self) -> dict[str, int]:
        return self.shades()

    def whole(self) -> bool:
        """Say whether the reader may see every budget."""
        return all(self.sees(path) for path in self.budgets)

    def _touches(self, program: str) -> bool:
        return self.held.everything or any(
            self.program(at) == program or self.sees(program) for at, _ in self.held.roles
        )
