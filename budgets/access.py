"""Who may see and do what. The only module that decides it; pages and API ask here.

A role holds in its budget and everything below. Roles are ranked: a manager may do all that a
member may, an administrator all that a manager may; superusers are administrators of everything.
What is not visible to someone is answered as if it weren't there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property, reduce
from operator import or_
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q, QuerySet
from django.http import Http404
from django.utils.translation import gettext_lazy

from budgets.models import Budget, ChangeSet, Exemption, Notice, Request, Role
from budgets.names import Names, formerly
from budgets.refusals import Refused
from clusters.saying import say as _

Person = AbstractBaseUser | AnonymousUser
Kind = Role.Kind
ELSEWHERE = "elsewhere"  # stands for the path of a budget that moved out of sight
NOT_HERE = gettext_lazy("There is no such budget, or none that you may see.")
NOT_ALL_YOURS = gettext_lazy(
    "Approving it also changes shares of a budget that you do not manage: ask who manages both."
)


class Action(StrEnum):
    """What someone may want to do with a budget."""

    VIEW = "view"
    SUBMIT = "submit"  # jobs to it
    CANCEL_OWN = "cancel_own"  # jobs they submitted to it
    CANCEL_ANY = "cancel_any"  # anyone's jobs in it
    EXTEND_OWN = "extend_own"  # sessions they submitted to it
    EXTEND_ANY = "extend_any"  # anyone's sessions in it
    PROPOSE_SHARES = "propose_shares"  # of its children
    EDIT_SHARES = "edit_shares"  # of its children: approve, create, move, archive them
    ASK = "ask"  # for more for it; withdraw what they asked
    WITHDRAW_ANY = "withdraw_any"  # anyone's requests for it
    DECIDE_REQUESTS = "decide_requests"  # for what is below it, out of what it has
    PLAN = "plan"  # how much of its grant it means to use when
    TRANSFER = "transfer"  # between budgets below it, and out of its reserve
    MANAGE_ROLES = "manage_roles"  # in it
    RENAME = "rename"  # itself, and so the paths of all below it
    COMPARE_PEOPLE = "compare_people"  # by name: what each declares against what it uses
    SIMULATE = "simulate"  # the cluster for it, and see what others simulated for it
    COMMENT = "comment"  # on its reviews
    HOLD_REVIEWS = "hold_reviews"  # of it: keep their figures, with what was decided
    ADMINISTER = "administer"  # periods, grants, adjustments


RANK = {Kind.VIEWER: 1, Kind.MEMBER: 2, Kind.MANAGER: 3, Kind.ADMINISTRATOR: 4}
# The least role that an action needs, in the budget or above it.
NEEDS = {
    Action.VIEW: Kind.VIEWER,
    Action.COMMENT: Kind.VIEWER,
    Action.SUBMIT: Kind.MEMBER,
    Action.CANCEL_OWN: Kind.MEMBER,
    Action.CANCEL_ANY: Kind.MANAGER,
    Action.EXTEND_OWN: Kind.MEMBER,
    Action.EXTEND_ANY: Kind.MANAGER,
    Action.PROPOSE_SHARES: Kind.MEMBER,
    Action.EDIT_SHARES: Kind.MANAGER,
    Action.ASK: Kind.MEMBER,
    Action.PLAN: Kind.MEMBER,
    Action.WITHDRAW_ANY: Kind.MANAGER,
    Action.DECIDE_REQUESTS: Kind.MANAGER,
    Action.TRANSFER: Kind.MANAGER,
    Action.MANAGE_ROLES: Kind.MANAGER,
    Action.RENAME: Kind.MANAGER,
    Action.COMPARE_PEOPLE: Kind.MANAGER,
    Action.SIMULATE: Kind.MANAGER,
    Action.HOLD_REVIEWS: Kind.MANAGER,
    Action.ADMINISTER: Kind.ADMINISTRATOR,
}
# Where reasons and stories name a budget, and what else they say of a job in it.
NAMED_BY = {
    "budget": ("job", "name"),
    "by_budget": ("by_job", "by_name"),
    "path": (),
    "binding": (),
}
# A manager's power over these starts below the node: nobody hands out roles in their own, and what
# a budget is called is its parent's business, as its share is.
STRICTLY_BELOW = {Action.MANAGE_ROLES, Action.RENAME}


class CalledOtherwise(Http404):
    """No budget has this path, but one had it that the person may see: it is at `path` now."""

    def __init__(self, old: str, path: str) -> None:
        super().__init__(
            _("There is no budget %(old)s any more: it is %(path)s now.", old=old, path=path)
        )
        self.old, self.path = old, path


@dataclass(frozen=True)
class Standing:
    """The roles of one person, loaded once: ask it as often as a page has rows."""

    everything: bool
    roles: tuple[tuple[str, Kind], ...]  # path, kind

    def can(self, action: Action, path: str) -> bool:
        """Say whether the person may do this to the budget with this path."""
        if self.everything:
            return True
        least = RANK[NEEDS[action]]
        return any(
            RANK[kind] >= least
            and (kind == Kind.ADMINISTRATOR or action not in STRICTLY_BELOW or at != path)
            for at, kind in self.roles
            if is_within(path, at)
        )

    def sees(self, path: str) -> bool:
        """Say whether the person may see the budget with this path."""
        return self.can(Action.VIEW, path)

    def knows(self, path: str) -> bool:
        """Say whether the person may learn that there is a budget with this path.

        They know what they may see, and the names above it, which their own paths contain.
        """
        return self.everything or any(
            is_within(path, at) or is_within(at, path) for at, _ in self.roles
        )

    def named(self, path: str) -> str:
        """Return a path for the person: of a budget that moved out of sight, only its own slug."""
        return path if self.knows(path) else out_of_sight(path.rpartition("/")[2])

    def may_give(self, kind: str, path: str) -> bool:
        """Say whether the person may give or take this role in the budget with this path."""
        if not self.can(Action.MANAGE_ROLES, path):
            return False
        return kind != Kind.ADMINISTRATOR or self.can(Action.ADMINISTER, path)


def out_of_sight(slug: str) -> str:
    """Return what stands for the path of a budget that has, or had, a slug."""
    return f"{ELSEWHERE}/{slug}"


class NamedThen:
    """Names paths for a person; of a budget that moved out of sight, only its slug at an instant.

    What it was called later is as much out of sight.
    """

    def __init__(self, held: Standing, at: datetime) -> None:
        self._held, self._at = held, at

    def path(self, path: str) -> str:
        """Return the path, or what stands for it."""
        if self._held.knows(path):
            return path
        return out_of_sight(self._slugs.get(path, path.rpartition("/")[2]))

    @cached_property
    def _slugs(self) -> dict[str, str]:
        names = Names.load()
        return {one.path: names.at(one, self._at).slug for one in Budget.objects.all()}


EVERYTHING = Standing(everything=True, roles=())  # of the organisation's own files and commands


def is_within(path: str, top: str) -> bool:
    """Say whether a path is `top` itself or below it."""
    return path == top or path.startswith(f"{top}/")


def standing(user: Person) -> Standing:
    """Return what a person's roles amount to; nobody who is signed out or inactive has any."""
    if not (user.is_authenticated and user.is_active):
        return Standing(everything=False, roles=())
    if getattr(user, "is_superuser", False):
        return Standing(everything=True, roles=())
    rows = Role.objects.filter(user_id=user.pk).order_by("pk")
    roles = tuple((path, Kind(kind)) for path, kind in rows.values_list("budget__path", "kind"))
    return Standing(everything=False, roles=roles)


def can(user: Person, action: Action, budget: Budget) -> bool:
    """Say whether a person may do this to a budget. One query."""
    return standing(user).can(action, budget.path)


def may_administer(user: Person) -> bool:
    """Say whether a person may administer the organisation, whose periods are. Two queries."""
    held = standing(user)
    roots = Budget.objects.filter(parent=None).values_list("path", flat=True)
    return held.everything or any(held.can(Action.ADMINISTER, path) for path in roots)


def administrators() -> QuerySet[User]:
    """Return who may administer the organisation now: never nobody, see `budgets.roles`."""
    roots = Role.objects.filter(budget__parent=None, kind=Kind.ADMINISTRATOR).values("user_id")
    return User.objects.filter(Q(is_superuser=True) | Q(pk__in=roots), is_active=True)


def gives_roles(held: Standing) -> list[str]:
    """Return the paths at and below which somebody gives some roles; [] where nowhere."""
    least = RANK[NEEDS[Action.MANAGE_ROLES]]
    return [path for path, kind in held.roles if RANK[kind] >= least]


def visible(user: Person) -> QuerySet[Budget]:
    """Return the budgets a person may see, archived ones included."""
    return Budget.objects.filter(visible_q(user))


def visible_q(user: Person, prefix: str = "") -> Q:
    """Return the condition "its budget is visible", for rows that reach it through `prefix`.

    `Job.objects.filter(visible_q(user, "budget__"))` are the jobs a person may see.
    """
    held = standing(user)
    if held.everything:
        return Q()
    return reduce(or_, _subtrees(held, f"{prefix}path"), Q(pk__in=()))


def simulates(held: Standing) -> Budget | None:
    """Return the highest budget that someone may simulate for, the first by path; None: nobody's.

    One query.
    """
    tops = [path for path, _ in held.roles if held.can(Action.SIMULATE, path)]
    wanted = Q(parent=None) if held.everything else Q(path__in=tops)
    found = Budget.objects.filter(wanted)
    return min(found, key=lambda one: (one.path.count("/"), one.path), default=None)


def sees_plan(held: Standing, undecided: Iterable[ChangeSet]) -> bool:
    """Say whether someone may know what a plan of shares would come to: all of it that is open.

    What is decided is in force from its instant on, for everybody.
    """
    return all(held.sees(one.parent.path) for one in undecided)


def simulated_q(user: Person) -> Q:
    """Return the condition "they may see the simulation": their own, or for what they manage."""
    held = standing(user)
    if held.everything:
        return Q()
    own = Q(asked_by_id=user.pk) if user.is_authenticated and user.is_active else Q(pk__in=())
    managed = [path for path, _ in held.roles if held.can(Action.SIMULATE, path)]
    below = (Q(budget__path=at) | Q(budget__path__startswith=f"{at}/") for at in managed)
    return reduce(or_, below, own)


def _subtrees(held: Standing, field: str) -> Iterator[Q]:
    for path, _kind in held.roles:
        yield Q(**{field: path}) | Q(**{f"{field}__startswith": f"{path}/"})


def get_budget_or_404(user: Person, path: str) -> Budget:
    """Return the budget with this path, if the person may see it; else Http404.

    CalledOtherwise, if they see one that had the path before, and know all that were above it.
    """
    if "\0" in path:
        raise Http404(NOT_HERE)
    budget = visible(user).filter(path=path).first()
    if budget is not None:
        return budget
    held = standing(user)
    for one in formerly(path, known=lambda row: held.knows(row.path)):
        if held.sees(one.path):
            raise CalledOtherwise(path, one.path)
    raise Http404(NOT_HERE)


def holders(action: Action, budget: Budget) -> QuerySet[User]:
    """Return who may do this to a budget by a role there or above it; superusers aside."""
    names = budget.path.split("/")
    above = ["/".join(names[: n + 1]) for n in range(len(names))]
    kinds = [kind for kind in Kind if RANK[kind] >= RANK[NEEDS[action]]]
    roles = Role.objects.filter(budget__path__in=above, kind__in=kinds)
    if action in STRICTLY_BELOW:
        roles = roles.exclude(~Q(kind=Kind.ADMINISTRATOR), budget__path=budget.path)
    return User.objects.filter(is_active=True, pk__in=roles.values("user_id")).order_by("pk")


def leads(budget: Budget) -> QuerySet[User]:
    """Return who answers for a budget: the managers it has itself, else its members."""
    roles = Role.objects.filter(budget=budget)
    managers = roles.filter(kind__in=(Kind.MANAGER, Kind.ADMINISTRATOR))
    own = managers if managers.exists() else roles.filter(kind=Kind.MEMBER)
    return User.objects.filter(is_active=True, pk__in=own.values("user_id")).order_by("pk")


def may_withdraw(held: Standing, user: Person, request: Request) -> bool:
    """Say whether someone may withdraw a request: their own, or any as the budget's manager."""
    path = request.budget.path
    own = request.asked_by_id == user.pk and held.can(Action.ASK, path)
    return own or held.can(Action.WITHDRAW_ANY, path)


def get_request_or_404(user: Person, pk: int) -> Request:
    """Return a request for a budget that the person may see; else Http404."""
    seen = Request.objects.filter(visible_q(user, "budget__"))
    related = ("budget__parent", "asked_by", "decided_by", "source", "change_set", "set_back")
    found = seen.select_related(*related).filter(pk=pk).first()
    if found is None:
        raise Http404(_("There is no such request, or none that you may see."))
    return found


def get_exemption_or_404(user: Person, pk: int) -> Exemption:
    """Return what was asked for a budget that the person may see; else Http404."""
    seen = Exemption.objects.filter(visible_q(user, "budget__"))
    related = ("checkpoint__period", "budget__parent", "asked_by", "decided_by")
    found = seen.select_related(*related).filter(pk=pk).first()
    if found is None:
        raise Http404(_("There is no such exemption, or none that you may see."))
    return found


def may_place(held: Standing, action: Action, budget: Budget, to: Budget | None = None) -> bool:
    """Say whether someone may propose, or decide on, another place of a budget.

    It is a change of the shares that its parent gives, and that the one gives where it moves to:
    `action` is PROPOSE_SHARES or EDIT_SHARES. The organisation has its place for good.
    """
    parents = [one for one in (budget.parent, to) if one is not None]
    return budget.parent is not None and all(held.can(action, one.path) for one in parents)


def may_approve(held: Standing, parents: Iterable[Budget]) -> bool:
    """Say whether someone may approve what changes the shares of all these budgets' children."""
    return all(held.can(Action.EDIT_SHARES, one.path) for one in parents)


def may_decline(held: Standing, parents: Iterable[Budget]) -> bool:
    """Say whether someone may decline it: it needs all of them, so any one's manager may."""
    return any(held.can(Action.EDIT_SHARES, one.path) for one in parents)


def check_approval(user: Person, parents: Iterable[Budget]) -> None:
    """Refuse in a sentence what someone may not approve."""
    if not may_approve(standing(user), parents):
        raise Refused("status", str(NOT_ALL_YOURS))


def may_decide(held: Standing, exemption: Exemption) -> bool:
    """Say whether someone decides about an exemption: who may decide requests for its budget."""
    parent = exemption.budget.path.rpartition("/")[0]
    return bool(parent) and held.can(Action.DECIDE_REQUESTS, parent)


def own_notices(user: Person) -> QuerySet[Notice]:
    """Return what one person was told, the newest first; nobody reads another's."""
    own = Notice.objects.filter(user_id=user.pk) if user.is_authenticated else Notice.objects.none()
    return own.select_related("budget").order_by("-pk")


def get_notice_or_404(user: Person, pk: int) -> Notice:
    """Return one of the person's own notices; else Http404."""
    found = own_notices(user).filter(pk=pk).first()
    if found is None:
        raise Http404(_("There is no such notice, or it is somebody else's."))
    return found


def named_to(user: Person, sibling: Budget) -> str:
    """Return a budget's path for someone who may know it, else what it is to a sibling."""
    return sibling.path if standing(user).knows(sibling.path) else _("a budget beside it")


def redacted(held: Standing, data: Any) -> Any:
    """Return reasons and stories with the names taken out of what a person may not know.

    A job goes with its budget: of one in a budget unknown to the person neither number nor name
    is left, only that there is one.
    """
    if isinstance(data, list):
        return [redacted(held, one) for one in data]
    if not isinstance(data, dict):
        return data
    shown = {key: redacted(held, value) for key, value in data.items()}
    for field, names in NAMED_BY.items():
        path = data.get(field)
        if isinstance(path, str) and not held.knows(path):
            shown |= dict.fromkeys((field, *names))
    return shown
