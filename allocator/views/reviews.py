"""Reviews: the list, a pack with its files, holding one, and comments."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from allocator.forms import CommentForm, HoldForm
from allocator.pages import review_files
from allocator.pages import reviews as pages
from allocator.reviews import commenting, keeping
from budgets.access import Action, can
from budgets.models import Budget, Period
from budgets.refusals import Refused
from config.clock import now
from ledger.instants import LedgerError


@require_safe
@login_required
def reviews(request: HttpRequest) -> HttpResponse:
    """The reviews that the reader may see, by period."""
    return render(
        request, "allocator/reviews.html", {"page": pages.listing(request.user, now=now())}
    )


@require_safe
@login_required
def review(request: HttpRequest, pk: int, path: str) -> HttpResponse:
    """One pack: kept where the review was held, else live."""
    asked = pages.ask(request.user, pk=pk, path=path, version=request.GET.get("version", ""))
    return _page(request, asked)


@require_safe
@login_required
def review_file(request: HttpRequest, pk: int, path: str, kind: str) -> HttpResponse:
    """The same pack as a file."""
    asked = pages.ask(request.user, pk=int(pk), path=path, version=request.GET.get("version", ""))
    try:
        user = cast(User, request.user)
        file = review_files.file_of(user, asked=asked, kind=kind, now=now())
    except LedgerError as error:
        return HttpResponseBadRequest(str(error), content_type="text/plain; charset=utf-8")
    return HttpResponse(
        file.chunks,
        content_type=file.content_type,
        headers={"Content-Disposition": f'attachment; filename="{file.name}"'},
    )


def _page(
    request: HttpRequest,
    asked: pages.Asked,
    *,
    hold: HoldForm | None = None,
    comment: CommentForm | None = None,
) -> HttpResponse:
    try:
        page = pages.page(request.user, asked=asked, now=now())
    except LedgerError as error:
        return HttpResponseBadRequest(str(error), content_type="text/plain; charset=utf-8")
    given = {"held_on": page.today, "base_version": page.version}
    if page.version:
        given["decision"] = page.records[0].decision
    context = {
        "page": page,
        "hold": hold or HoldForm(initial=given),
        "comment": comment or CommentForm(),
        "nav_current": "reviews",
    }
    wrong = any(form is not None and form.errors for form in (hold, comment))
    return render(request, "allocator/review.html", context, status=422 if wrong else 200)


@require_POST
@login_required
def hold(request: HttpRequest, pk: int, path: str) -> HttpResponse:
    """Keep the pack as it is now, since its review was held; what is refused stands in the form."""
    asked = pages.ask(request.user, pk=pk, path=path, version=pages.LIVE)
    _require(request, Action.HOLD_REVIEWS, asked.budget)
    form = HoldForm(request.POST)
    if form.is_valid():
        try:
            made = keeping.hold(
                budget=asked.budget,
                period=asked.period,
                by=cast(User, request.user),
                now=now(),
                **form.cleaned_data,
            )
        except Refused as refused:
            form.refuse(refused)
        else:
            messages.success(request, _("Version %(number)s is kept.") % {"number": made.version})
            return redirect("review", pk=pk, path=asked.budget.path)
    return _page(request, asked, hold=form)


@require_POST
@login_required
def comment(request: HttpRequest, pk: int, path: str) -> HttpResponse:
    """Say something about a pack."""
    asked = pages.ask(request.user, pk=pk, path=path)
    _require(request, Action.COMMENT, asked.budget)
    form = CommentForm(request.POST)
    if form.is_valid():
        try:
            commenting.add(
                budget=asked.budget,
                period=asked.period,
                author=cast(User, request.user),
                text=form.cleaned_data["text"],
                now=now(),
            )
        except Refused as refused:
            form.add_error("text", refused.sentence)
        else:
            return _back(asked.period, asked.budget)
    return _page(request, asked, comment=form)


@require_POST
@login_required
def comment_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Write one's own comment anew."""
    found = commenting.find(request.user, pk)
    try:
        commenting.edit(
            comment=found, by=request.user, text=request.POST.get("text", ""), now=now()
        )
    except Refused as refused:
        messages.error(request, refused.sentence)
    return _back(found.period, found.budget)


@require_POST
@login_required
def comment_withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    """Take one's own comment back."""
    found = commenting.find(request.user, pk)
    try:
        commenting.withdraw(comment=found, by=request.user, now=now())
    except Refused as refused:
        messages.error(request, refused.sentence)
    return _back(found.period, found.budget)


def _require(request: HttpRequest, action: Action, budget: Budget) -> None:
    if not can(request.user, action, budget):
        raise PermissionDenied(_("You may see this budget, but not do that."))


def _back(period: Period, budget: Budget) -> HttpResponse:
    answer = redirect("review", pk=period.pk, path=budget.path)
    answer["Location"] += "#comments"
    return answer
