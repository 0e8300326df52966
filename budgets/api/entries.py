"""What the API's entries by people share: how one is shown, asked for once, and refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import uuid4

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request

from budgets.access import get_budget_or_404
from budgets.models import Budget
from clusters.saying import say as _
from config.fields import Instant, Strict, Text
from config.problems import Conflict
from ledger.grants import NOTE_MAX
from ledger.models import Entry
from ledger.services import KeyTaken, LedgerError, WrongNote

KEY_HEADER = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)
FIELDS = ("id", "budget", "period", "at", "amount_mgpus", "author", "reason")


class EntryOut(serializers.ModelSerializer[Entry]):
    """An entry that a person decided, with its reason."""

    budget = serializers.CharField(source="budget.path")
    period = serializers.CharField(source="period.name")
    at = Instant()
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    reason = serializers.CharField(source="note")

    class Meta:
        model = Entry
        fields: ClassVar[tuple[str, ...]] = FIELDS


class EntryIn(Strict):
    """Why it is written, and the key that makes what is sent twice one entry."""

    reason = Text(max_length=NOTE_MAX)
    idempotency_key = Text(
        max_length=60,
        required=False,
        help_text="Also as header Idempotency-Key: the same request again answers the same",
    )


class Entries(ListAPIView[Entry]):
    """A budget's entries of one sort, the newest first, for who may see the budget."""

    filter_backends = ()

    def entries(self, budget: Budget) -> Any:
        raise NotImplementedError

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return Entry.objects.none()
        found = self.entries(get_budget_or_404(self.request.user, self.kwargs["path"]))
        return found.select_related("budget", "period", "author").order_by("-pk")


def key_of(request: Request, given: dict[str, Any]) -> str:
    """Return the key of what is asked, one's own: of the header, the body, or a new one."""
    header, field = request.headers.get("Idempotency-Key"), given.get("idempotency_key")
    if header is not None:
        header = Text(max_length=60).run_validation(header)
        if field not in (None, header):
            sentence = _("It differs from the header Idempotency-Key: send one of them.")
            raise ValidationError({"idempotency_key": [sentence]})
    return f"{request.user.pk}:{header or field or uuid4().hex}"


@contextmanager
def refused() -> Iterator[None]:
    """Turn what the ledger refuses into problem objects."""
    try:
        yield
    except KeyTaken as error:
        raise Conflict(str(error)) from error
    except WrongNote as error:
        raise ValidationError({"reason": [str(error)]}) from error
    except LedgerError as error:
        raise ValidationError({"amount_mgpus": [str(error)]}) from error
