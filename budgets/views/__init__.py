"""Pages of the tree, of one budget, and of the shares of its children."""

from typing import cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    conditional_page,
    require_http_methods,
    require_POST,
    require_safe,
)

from allocator import steering
from allocator.pages import budget as budget_page
from allocator.pages import conflict as conflict_page
from allocator.pages import editor as editor_page
from allocator.pages import periods as periods_page
from allocator.pages import placing as placing_page
from allocator.pages import requests as requests_page
from allocator.pages import transfers as transfers_page
from allocator.pages import tree as tree_page
from allocator.pages.requests import Row
from budgets import access, services
from budgets import notices as telling
from budgets import requests as asking
from budgets import shares as reads
from budgets.access import get_notice_or_404
from budgets.forms import (
    DECISIONS,
    AskForm,
    DecisionForm,
    SharesForm,
    TransferForm,
    rebased,
)
from budgets.forms.periods import PeriodForm
from budgets.models import ChangeSet
from budgets.services import Refused, StaleBase
from clusters.words import worded
from clusters.writing import dated
from config.clock import now
from ledger import services as ledger


@require_safe
@conditional_page
@login_required
def tree(request: HttpRequest) -> HttpResponse:
    """The tree of budgets; asked for by htmx, its table alone."""
    page = tree_page.page(
        request.user,
        now=now(),
        show=request.GET.get("show", "all"),
        words=request.GET.get("name", ""),
        sort=request.GET.get("sort", ""),
        pool=request.GET.get("pool", ""),
        fill=request.GET.get("fill", ""),
    )
    template = "budgets/_tree.html" if request.headers.get("HX-Request") else "budgets/tree.html"
    return render(request, template, {"page": page})


@require_safe
@conditional_page
@login_required
def budget(request: HttpRequest, path: str) -> HttpResponse:
    """One budget; asked for by htmx, its figures alone."""
    page = budget_page.page(request.user, path=path, now=now(), sort=request.GET.get("sort", ""))
    if request.headers.get("HX-Request"):
        return render(request, "budgets/_facts.html", {"page": page})
    context = {"page": page, "form": AskForm(), "nav_current": "budgets"}
    return render(request, "budgets/budget.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def shares(request: HttpRequest, path: str) -> HttpResponse:
    """The share editor. What is typed is written once it is put in force or proposed."""
    found, at = editor_page.subject(request.user, path=path), now()
    if request.method != "POST":
        chosen = request.GET.get("set", "")
        place = placing_page.address(request.user, parent=found.parent, pk=chosen)
        if place is not None:
            return redirect(place)
        looked_at = editor_page.proposal(found, pk=chosen)
        ahead = periods_page.planned_start(request.GET.get("period", ""), now=at)
        return _editor(request, SharesForm(found, now=at, looked_at=looked_at, ahead=ahead))
    if request.POST.get("onto") == str(found.base_version):
        return _editor(request, rebased(found, request.POST, now=at))
    form = SharesForm(found, request.POST, now=at)
    if form.is_outdated:
        return _conflict(request, form)
    if not form.is_valid() or request.POST.get("do") not in DECISIONS:
        return _editor(request, form)
    return _decide(request, form, approve=request.POST["do"] == "approve")


def _decide(request: HttpRequest, form: SharesForm, *, approve: bool) -> HttpResponse:
    found = form.found
    try:
        made = steering.change_shares(
            parent=found.parent,
            author=cast(User, request.user),
            approve_at_once=approve and found.may_approve,
            now=form.now,
            **form.decision,
        )
    except Refused as refused:
        form.add_error(None, refused.sentence)
        return _editor(request, form)
    except StaleBase:
        again = editor_page.subject(request.user, path=found.parent.path)
        return _conflict(request, SharesForm(again, request.POST, now=form.now))
    messages.success(request, _said(made))
    return redirect("shares", path=found.parent.path)


@require_POST
@login_required
def shares_preview(request: HttpRequest, path: str) -> HttpResponse:
    """What the shares that are being typed would move; nothing is written."""
    found, at = editor_page.subject(request.user, path=path), now()
    form = SharesForm(found, request.POST, now=at)
    page = editor_page.page(found, vector=form.vector, effective_at=form.from_when, now=at)
    return render(request, "budgets/_preview.html", {"page": page, "form": form})


@require_POST
@login_required
def decide(request: HttpRequest, pk: int, decision: str) -> HttpResponse:
    """Approve or decline a proposal."""
    found, at = editor_page.to_decide(request.user, pk=pk), now()
    person, one, parents = cast(User, request.user), found.change_set, found.parents
    try:
        if decision == "approve":
            access.check_approval(person, parents)
            made = steering.approve(change_set=one, by=person, now=at, parents=parents)
        else:
            made = services.decline(change_set=one, by=person, now=at)
    except Refused as refused:
        messages.error(request, refused.sentence)
    except StaleBase as stale:
        messages.error(request, str(stale))
    else:
        messages.success(request, _said(made))
    return redirect("shares", path=found.back.path)


@require_safe
@login_required
def requests(request: HttpRequest) -> HttpResponse:
    """What is asked for: to be decided by the reader, by others, and what was decided."""
    page = requests_page.page(request.user, now=now())
    return render(request, "budgets/requests.html", {"page": page})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def ask(request: HttpRequest, path: str) -> HttpResponse:
    """Ask for more for a budget; and what was asked for it before."""
    page = requests_page.asking(request.user, path=path, now=now())
    form = AskForm(request.POST or None)
    if request.method == "POST" and page.can_ask and form.is_valid():
        by = cast(User, request.user)
        try:
            made = asking.ask(budget=page.budget, by=by, now=now(), **form.asked)
        except Refused as refused:
            form.refuse(next(iter(refused.message_dict)), refused.sentence)
        else:
            messages.success(request, _("Request %(number)s is asked.") % {"number": made.pk})
            return redirect("request", pk=made.pk)
    context = {"page": page, "form": form, "nav_current": "requests"}
    return render(request, "budgets/ask.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def request(request: HttpRequest, pk: int) -> HttpResponse:
    """One request; who may decides on it."""
    row = requests_page.detail(request.user, pk=pk, now=now())
    if request.method != "POST":
        return _request(request, row, _decision(row))
    form = _decision(row, request.POST)
    if row.may_decide and form.is_valid() and _decided(request, row, form):
        return redirect("request", pk=pk)
    again = requests_page.detail(request.user, pk=pk, now=now())
    return _request(request, again, form, status=422)


def _decision(row: Row, data: QueryDict | None = None) -> DecisionForm:
    parent = row.request.budget.parent
    version = reads.version(parent) if parent is not None else 0
    return DecisionForm(row.request, [one.source for one in row.choices], version, data)


def _decided(request: HttpRequest, row: Row, form: DecisionForm) -> bool:
    """Decide as the form says; say what was done, or put what was refused into the form."""
    by, at = cast(User, request.user), now()
    try:
        if request.POST.get("do") == "grant":
            steering.grant_request(request=row.request, by=by, now=at, **form.decision)
            said = _("Request %(number)s is granted.")
        else:
            answer = form.cleaned_data["reason"]
            ledger.decline_request(request=row.request, answer=answer, by=by, now=at)
            said = _("Request %(number)s is declined.")
    except Refused as refused:
        form.refuse(next(iter(refused.message_dict)), refused.sentence)
    except (StaleBase, ledger.LedgerError) as error:
        form.refuse("source", str(error))
    else:
        messages.success(request, said % {"number": row.request.pk})
        return True
    return False


def _request(request: HttpRequest, row: Row, form: DecisionForm, status: int = 200) -> HttpResponse:
    context = {"row": row, "form": form, "nav_current": "requests"}
    return render(request, "budgets/request.html", context, status=status)


@require_POST
@login_required
def withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    """Take an open request back."""
    row = requests_page.detail(request.user, pk=pk, now=now())
    try:
        if row.may_withdraw:
            asking.withdraw(request=row.request, by=cast(User, request.user), now=now())
            messages.success(request, _("Request %(number)s is withdrawn.") % {"number": pk})
        else:
            messages.error(request, _("Who asked may withdraw it, or a manager of the budget."))
    except Refused as refused:
        messages.error(request, refused.sentence)
    return redirect("request", pk=pk)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def transfers(request: HttpRequest, path: str) -> HttpResponse:
    """Move credits to another budget; looked at first, moved when it is confirmed."""
    found = transfers_page.subject(request.user, path=path, now=now())
    posted = request.POST if request.method == "POST" else None
    form = TransferForm(found, posted)
    if form.is_valid() and form.confirms and _moved(request, form):
        return redirect("budget", path=path)
    told = {"has": transfers_page.figures(found), "moved": transfers_page.lately(found)}
    context = _transfer(form) | told | {"nav_current": "budgets"}
    return render(request, "budgets/transfers.html", context, status=422 if form.errors else 200)


@require_POST
@login_required
def transfers_preview(request: HttpRequest, path: str) -> HttpResponse:
    """What the transfer that is being typed would do; nothing is written."""
    form = TransferForm(transfers_page.subject(request.user, path=path, now=now()), request.POST)
    form.is_valid()
    return render(request, "budgets/_transfer.html", _transfer(form) | {"live": True})


def _moved(request: HttpRequest, form: TransferForm) -> bool:
    """Move the credits; what is refused stands in the form."""
    by, key = cast(User, request.user), form.cleaned_data["key"]
    try:
        steering.transfer(author=by, key=f"{by.pk}:{key}", now=form.found.now, **form.transfer)
    except ledger.KeyTaken:
        form.send_anew()
    except ledger.LedgerError as error:
        form.add_error("amount", str(error))
    else:
        messages.success(request, form.said)
        return True
    return False


def _transfer(form: TransferForm) -> dict[str, object]:
    target, amount, preview = form.target, form.amount_mgpus, None
    if target is not None and amount is not None:
        preview = transfers_page.preview(form.found, target=target, amount_mgpus=amount)
    return {"page": form.found, "form": form, "preview": preview}


@require_safe
@login_required
def notices(request: HttpRequest) -> HttpResponse:
    """What the reader was told."""
    return render(request, "budgets/notices.html", {"page": requests_page.told(request.user)})


@require_POST
@login_required
def read(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Note that one of the reader's notices was read, and go where it points; or all of them."""
    person = cast(User, request.user)
    to = "notices" if pk is None else get_notice_or_404(person, pk).link
    telling.mark_read(user=person, pk=pk, now=now())
    return redirect(to)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def period_list(request: HttpRequest) -> HttpResponse:
    """All periods; administrators of the organisation draft one."""
    page = periods_page.listing(request.user, now=now())
    last = page.lines[0].period if page.lines else None
    zone = settings.ORGANISATION_TIME_ZONE
    form = PeriodForm(request.POST or None, last=last, default_zone=zone)
    if request.method == "POST" and page.may_administer and form.is_valid():
        try:
            made = steering.draft_period(by=cast(User, request.user), now=now(), **form.arguments)
        except Refused as refused:
            form.refuse(refused)
        else:
            messages.success(request, _("%(name)s is drafted.") % {"name": made.name})
            return redirect("period", pk=made.pk)
    context = {"page": page, "form": form}
    return render(request, "budgets/periods.html", context, status=422 if form.errors else 200)


@require_safe
@login_required
def period(request: HttpRequest, pk: int) -> HttpResponse:
    """One period: its plan beside what is in force, or its closing statement."""
    page = periods_page.page(request.user, pk=pk, now=now())
    return render(request, "budgets/period.html", {"page": page, "nav_current": "periods"})


@require_POST
@login_required
def period_decide(request: HttpRequest, pk: int, decision: str) -> HttpResponse:
    """Propose or approve a period, or make a draft of it again."""
    found = periods_page.find(pk)
    if not access.may_administer(request.user):
        raise PermissionDenied
    try:
        made = steering.decide_period(
            period=found, decision=decision, by=cast(User, request.user), now=now()
        )
    except (Refused, ledger.LedgerError) as refused:
        messages.error(request, getattr(refused, "sentence", str(refused)))
    else:
        words = {"name": made.name, "state": worded(made.get_status_display()).lower()}
        messages.success(request, _("%(name)s: %(state)s.") % words)
    return redirect("period", pk=pk)


@require_safe
@login_required
def period_statement(request: HttpRequest, pk: int) -> HttpResponse:
    """The closing statement of the budgets that the reader sees, as CSV."""
    page = periods_page.page(request.user, pk=pk, now=now())
    return HttpResponse(
        periods_page.as_csv(page),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="statement-{page.period.pk}.csv"'},
    )


def _said(made: ChangeSet) -> str:
    at = timezone.localtime(made.effective_at)
    words = {"number": made.pk, "parent": made.parent.name, "at": dated(at, "d M H:i")}
    if made.status == ChangeSet.Status.PROPOSED:
        return _("Change set #%(number)s is proposed to the manager of %(parent)s.") % words
    if made.status == ChangeSet.Status.DECLINED:
        return _("Change set #%(number)s is declined.") % words
    if made.decided_at and made.effective_at > made.decided_at:
        return _("Change set #%(number)s is approved; it takes effect on %(at)s.") % words
    return _("Change set #%(number)s is in force, with the grants it moves.") % words


def _editor(request: HttpRequest, form: SharesForm) -> HttpResponse:
    page = editor_page.page(
        form.found, vector=form.vector, effective_at=form.from_when, now=form.now
    )
    context = {
        "page": page,
        "form": form,
        "lines": form.lines(page.rows),
        "nav_current": "budgets",
    }
    return render(request, "budgets/shares.html", context, status=422 if form.errors else 200)


def _conflict(request: HttpRequest, form: SharesForm) -> HttpResponse:
    page = conflict_page.conflict(
        form.found, base_version=form.based_on, mine=form.mine, gone=form.gone
    )
    context = {"page": page, "form": form, "subject": form.found, "nav_current": "budgets"}
    return render(request, "budgets/conflict.html", context, status=409)
