"""The page of grants and adjustments by hand."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from allocator import steering
from allocator.pages import by_hand as by_hand_page
from budgets.forms import ByHandForm
from config.clock import now
from ledger import services as ledger


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def by_hand(request: HttpRequest, path: str) -> HttpResponse:
    """Grant credits or adjust what is settled; looked at first, written when it is confirmed."""
    found = by_hand_page.subject(request.user, path=path, now=now())
    form = ByHandForm(found, request.POST if request.method == "POST" else None)
    if form.is_valid() and form.confirms and _written(request, form):
        return redirect("budget", path=path)
    told = {"has": by_hand_page.figures(found), "written": by_hand_page.lately(found.budget)}
    context = _context(form) | told | {"nav_current": "budgets"}
    return render(request, "budgets/by_hand.html", context, status=422 if form.errors else 200)


@require_POST
@login_required
def preview(request: HttpRequest, path: str) -> HttpResponse:
    """What the entry that is being typed would do; nothing is written."""
    form = ByHandForm(by_hand_page.subject(request.user, path=path, now=now()), request.POST)
    form.is_valid()
    return render(request, "budgets/_by_hand.html", _context(form) | {"live": True})


def _written(request: HttpRequest, form: ByHandForm) -> bool:
    """Write the entry; what is refused stands in the form."""
    by, key = cast(User, request.user), form.cleaned_data["key"]
    try:
        made = steering.write_by_hand(
            author=by, key=f"{by.pk}:{key}", now=form.found.now, **form.decision
        )
    except ledger.KeyTaken:
        form.send_anew()
    except ledger.LedgerError as error:
        form.refuse(str(error))
    else:
        again = _("This was written before; it is not written again.")
        messages.success(request, form.said if made.anew else again)
        return True
    return False


def _context(form: ByHandForm) -> dict[str, object]:
    kind, amount, shown = form.chosen, form.amount_mgpus, None
    if kind is not None and amount is not None:
        shown = by_hand_page.preview(form.found, kind=kind, amount_mgpus=amount, of=form.period)
    return {"page": form.found, "form": form, "preview": shown}
