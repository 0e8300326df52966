"""Decisions about budgets: shares, requests, credits, periods, roles, names."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from allocator.audit.rows import Asked, Reader, Row
from allocator.pages import changes
from budgets.access import visible_q
from budgets.models import (
    Budget,
    BudgetPlan,
    ChangeSet,
    Checkpoint,
    Decision,
    Exemption,
    FormerName,
    Request,
)
from clusters.writing import credits, percent
from ledger.by_hand import WRITTEN
from ledger.grants import TRANSFERS, WAY
from ledger.models import Entry

Status = ChangeSet.Status
GONE = "–"  # where there was no share, or there is none any more


class _Sets(Reader):
    """Change sets, with what each moves."""

    kind = "shares"
    budget = "parent__"

    def base(self, asked: Asked) -> QuerySet[ChangeSet]:
        sets = ChangeSet.objects.filter(visible_q(asked.user, "parent__"))
        sets = sets.select_related("parent", "author", "decided_by")
        return sets.prefetch_related("shares__budget", "shares__pool")

    def rows(self, found: list[Any], asked: Asked) -> list[Row]:
        return [self.told(one) for one in changes.of_sets(found)]

    def told(self, change: changes.Change) -> Row:
        made = change.change_set
        moves = tuple((_child(one), _share(one.before), _share(one.after)) for one in change.moves)
        url = reverse("budget", args=[made.parent.path])
        words = self.words(made) % {"name": made.parent.name}
        return self.tell(
            made, words, moves=moves, reason=made.reason, budget=made.parent.path, url=url
        )

    def words(self, made: ChangeSet) -> str:
        raise NotImplementedError


class Proposed(_Sets):
    """Proposals; one that was put in force as it was made is told as that alone."""

    name, at, actor = "proposed", "created_at", "author"

    def base(self, asked: Asked) -> QuerySet[ChangeSet]:
        at_once = Q(decided_at=F("created_at"), decided_by=F("author"))
        return super().base(asked).exclude(at_once).exclude(status=Status.DRAFT)

    def words(self, made: ChangeSet) -> str:
        return _("proposed shares below %(name)s")


class Decided(_Sets):
    """What was put in force, or declined."""

    name, at, actor = "decided", "decided_at", "decided_by"

    def base(self, asked: Asked) -> QuerySet[ChangeSet]:
        return super().base(asked).filter(decided_at__isnull=False, decided_by__isnull=False)

    def words(self, made: ChangeSet) -> str:
        if made.status == Status.DECLINED:
            return _("declined shares below %(name)s")
        return _("put shares below %(name)s in force")


class Asking(Reader):
    name, kind, at, actor, budget = "asked", "requests", "created_at", "asked_by", "budget__"

    def base(self, asked: Asked) -> QuerySet[Request]:
        rows = Request.objects.filter(visible_q(asked.user, "budget__"))
        return rows.select_related("budget", "asked_by", "decided_by")

    def row(self, one: Request, asked: Asked) -> Row:
        words = _("asked for %(amount)s more for %(name)s")
        return self.tell(one, words % _amounts(one, one.asked), reason=one.reason, **_of(one))


class Answered(Asking):
    name, at, actor = "answered", "decided_at", "decided_by"

    def base(self, asked: Asked) -> QuerySet[Request]:
        return super().base(asked).filter(decided_at__isnull=False)

    def row(self, one: Request, asked: Asked) -> Row:
        words = {
            "granted": _("granted %(amount)s to %(name)s"),
            "declined": _("declined the request of %(name)s for %(amount)s"),
            "withdrawn": _("withdrew the request of %(name)s for %(amount)s"),
        }.get(one.status, _("the request of %(name)s for %(amount)s expired"))
        amount = one.asked if one.given is None else one.given
        return self.tell(one, words % _amounts(one, amount), reason=one.answer, **_of(one))


class Transferred(Reader):
    """Transfers: the entry of 0 beside each tells from where to where."""

    name, kind, at, actor = "transferred", "credits", "created_at", "author"
    budget = "budget__"

    def base(self, asked: Asked) -> QuerySet[Entry]:
        ways = Entry.objects.filter(
            kind=Entry.Kind.GRANT, key__startswith=WAY, author__isnull=False
        ).select_related("author", "budget")
        if asked.held.everything:
            return ways
        halves = Entry.objects.filter(
            visible_q(asked.user, "budget__"),
            kind=Entry.Kind.TRANSFER,
            author=OuterRef("author"),
            created_at=OuterRef("created_at"),
        )
        return ways.filter(Exists(halves))

    def rows(self, found: list[Entry], asked: Asked) -> list[Row]:
        parts = {one.pk: one.key.removeprefix(WAY).rsplit(":", 2) for one in found}
        halves = Entry.objects.filter(
            key__in=[f"{TRANSFERS}{key}:{end}" for key, *ends in parts.values() for end in ends]
        )
        amounts = {one.key: abs(one.amount_mgpus) for one in halves}
        ids = {int(end) for _key, *ends in parts.values() for end in ends}
        budgets = Budget.objects.in_bulk(ids)
        told = []
        for one in found:
            key, source, target = parts[one.pk]
            ends = [budgets[int(source)], budgets[int(target)]]
            seen = [end for end in ends if asked.held.sees(end.path)]
            if not seen:
                continue
            amount = max(amounts.get(f"{TRANSFERS}{key}:{end}", 0) for end in (source, target))
            words = {
                "amount": credits(amount, 2),
                "source": asked.held.named(ends[0].path),
                "target": asked.held.named(ends[1].path),
            }
            text = _("moved %(amount)s credits from %(source)s to %(target)s") % words
            url = reverse("transfers", args=[seen[0].path])
            told.append(self.tell(one, text, reason=one.note, budget=seen[0].path, url=url))
        return told


class ByHand(Reader):
    name, kind, at, actor = "by-hand", "credits", "created_at", "author"
    budget = "budget__"

    def base(self, asked: Asked) -> QuerySet[Entry]:
        rows = Entry.objects.filter(visible_q(asked.user, "budget__"), author__isnull=False)
        return rows.filter(WRITTEN).select_related("author", "budget")

    def row(self, one: Entry, asked: Asked) -> Row:
        grant, up = one.kind == Entry.Kind.GRANT, one.amount_mgpus > 0
        words = {
            (True, True): _("granted %(amount)s credits to %(name)s by hand"),
            (True, False): _("took %(amount)s credits back from %(name)s by hand"),
            (False, True): _("added %(amount)s credits to what is settled of %(name)s"),
            (False, False): _("took %(amount)s credits off what is settled of %(name)s"),
        }[grant, up] % {"amount": credits(abs(one.amount_mgpus), 2), "name": one.budget.name}
        return self.tell(one, words, reason=one.note, **_of(one))


class Planned(Reader):
    name, kind, at, actor, budget = "planned", "plans", "created_at", "author", "budget__"

    def base(self, asked: Asked) -> QuerySet[BudgetPlan]:
        rows = BudgetPlan.objects.filter(visible_q(asked.user, "budget__"))
        return rows.select_related("budget", "period", "author")

    def row(self, one: BudgetPlan, asked: Asked) -> Row:
        words = {"name": one.budget.name, "period": one.period.name, "version": one.version}
        text = _("planned when %(name)s uses its grant of %(period)s, version %(version)s") % words
        url = reverse("budget-plan", args=[one.budget.path])
        return self.tell(one, text, reason=one.note, budget=one.budget.path, url=url)


class Checkpoints(Reader):
    name, kind, at, actor = "checkpoints", "checkpoints", "created_at", "author"

    def base(self, asked: Asked) -> QuerySet[Checkpoint]:
        return Checkpoint.objects.select_related("period", "author")

    def row(self, one: Checkpoint, asked: Asked) -> Row:
        words = {"at": f"{one.at:%Y-%m-%d %H:%M} UTC", "name": one.period.name}
        text = _("set a checkpoint of %(name)s at %(at)s") % words
        return self.tell(one, text, url=reverse("checkpoints", args=[one.period_id]))


class ExemptionAsked(Reader):
    name, kind, at, actor = "exemption-asked", "checkpoints", "asked_at", "asked_by"
    budget = "budget__"

    def base(self, asked: Asked) -> QuerySet[Exemption]:
        rows = Exemption.objects.filter(visible_q(asked.user, "budget__"))
        return rows.select_related("budget", "checkpoint__period", "asked_by", "decided_by")

    def row(self, one: Exemption, asked: Asked) -> Row:
        return self._told(one, _("asked that a checkpoint spare %(name)s"), one.reason)

    def _told(self, one: Exemption, words: str, reason: str) -> Row:
        url = reverse("checkpoints", args=[one.checkpoint.period_id])
        text = words % {"name": one.budget.name}
        return self.tell(one, text, reason=reason, budget=one.budget.path, url=url)


class ExemptionDecided(ExemptionAsked):
    name, at, actor = "exemption-decided", "decided_at", "decided_by"

    def base(self, asked: Asked) -> QuerySet[Exemption]:
        return super().base(asked).filter(decided_at__isnull=False)

    def row(self, one: Exemption, asked: Asked) -> Row:
        spared = one.status == Exemption.Status.APPROVED
        left = _("left %(name)s to a checkpoint")
        return self._told(one, _("had a checkpoint spare %(name)s") if spared else left, one.answer)


class Renamed(Reader):
    """Renames, each with the name that it ended."""

    name, kind, at, actor, budget = "renamed", "names", "until", "author", "budget__"

    def base(self, asked: Asked) -> QuerySet[FormerName]:
        rows = FormerName.objects.filter(visible_q(asked.user, "budget__"))
        return rows.select_related("budget", "author")

    def rows(self, found: list[FormerName], asked: Asked) -> list[Row]:
        """What it was called next is the name that the next row ended, or today's."""
        later: dict[int, list[FormerName]] = {}
        ids = {one.budget_id for one in found}
        for one in FormerName.objects.filter(budget__in=ids).order_by("until", "pk"):
            later.setdefault(one.budget_id, []).append(one)
        told = []
        for one in found:
            mine = [other.pk for other in later[one.budget_id]]
            place = mine.index(one.pk) + 1
            following = later[one.budget_id][place] if place < len(mine) else one.budget
            moves = [("", one.name, following.name)] if one.name != following.name else []
            if one.slug != following.slug:
                moves.append((_("address"), one.slug, following.slug))
            text = _("renamed %(name)s") % {"name": one.name}
            told.append(self.tell(one, text, moves=tuple(moves), **_of(one)))
        return told


class Decisions(Reader):
    """What leaves no row of its own: roles, periods, and how the installation is set up."""

    name, budget = "decisions", "budget__"

    def base(self, asked: Asked) -> QuerySet[Decision]:
        seen = visible_q(asked.user, "budget__") & Q(budget__isnull=False)
        rows = Decision.objects.select_related("by", "budget", "person", "period")
        kinds = Decision.OF_ALL if not asked.administers else tuple(Decision.Kind.values)
        return rows.filter(seen | Q(budget__isnull=True, kind__in=kinds))

    def _narrowed(self, wanted: QuerySet[Any], asked: Asked) -> QuerySet[Any] | None:
        narrowed = super()._narrowed(wanted, asked)
        if narrowed is None or not asked.filters.kind:
            return narrowed
        kinds = [kind for kind, listed in LISTED.items() if listed == asked.filters.kind]
        return narrowed.filter(kind__in=kinds)

    def row(self, one: Decision, asked: Asked) -> Row:
        moves = (("", one.before or GONE, one.after or GONE),)
        path = one.budget.path if one.budget else ""
        return Row(
            one.at,
            self.name,
            one.pk,
            LISTED[one.kind],
            one.by,
            self._words(one),
            moves=moves if one.before or one.after else (),
            reason=one.reason,
            budget=path,
            url=self._url(one, path),
        )

    def _words(self, one: Decision) -> str:
        who = one.person.get_full_name() or one.person.username if one.person else ""
        words = {"who": who, "name": one.budget.name if one.budget else one.subject}
        kinds = Decision.Kind
        return {
            kinds.ROLE: _("changed the role of %(who)s in %(name)s"),
            kinds.PERIOD: _("decided on the period %(name)s"),
            kinds.CHECKPOINT: _("took a checkpoint out of %(name)s"),
            kinds.POOL: _("changed the pool %(name)s"),
            kinds.RATE: _("set the rate of %(name)s"),
            kinds.NODE: _("changed the node %(name)s"),
            kinds.PERSON: _("changed the account of %(who)s"),
        }[kinds(one.kind)] % words

    @staticmethod
    def _url(one: Decision, path: str) -> str:
        if one.period_id:
            return reverse("period", args=[one.period_id])
        if one.kind == Decision.Kind.PERSON and one.person_id:
            return reverse("person", args=[one.person_id])
        if LISTED[one.kind] == "settings":
            return reverse("pools")
        return reverse("budget", args=[path]) if path else ""


# What the filter calls what stands in Decision.
LISTED: dict[str, str] = {
    Decision.Kind.ROLE: "roles",
    Decision.Kind.PERIOD: "periods",
    Decision.Kind.CHECKPOINT: "checkpoints",
    **dict.fromkeys((Decision.Kind.POOL, Decision.Kind.RATE, Decision.Kind.NODE), "settings"),
    Decision.Kind.PERSON: "people",
}


def _child(move: changes.Move) -> str:
    return f"{move.name} ({move.pool})" if move.pool else move.name


def _share(thousandths: int | None) -> str:
    return GONE if thousandths is None else f"{percent(thousandths, 3)} %"


def _amounts(one: Request, amount: int) -> dict[str, str]:
    in_percent = one.unit == Request.Unit.PERCENT
    words = f"{percent(amount, 3)} %" if in_percent else f"{credits(amount, 2)} {_('credits')}"
    return {"amount": words, "name": one.budget.name}


def _of(one: Any) -> dict[str, str]:
    """Budget and link of a row that is about one."""
    if isinstance(one, Request):
        return {"budget": one.budget.path, "url": reverse("request", args=[one.pk])}
    return {"budget": one.budget.path, "url": reverse("budget", args=[one.budget.path])}
