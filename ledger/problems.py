"""A breach of a rule that entries keep: which rule, and a sentence that names where."""

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.models import Entry

Kind = Entry.Kind


@dataclass(frozen=True, slots=True)
class EntryProblem:
    """A breach of a rule: which rule, and a sentence that names where."""

    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


Problems = Iterator[EntryProblem]
