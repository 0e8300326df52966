"""Pages that belong to no app: signing in, and the search field."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static

from allocator.demo import people
from allocator.pages import search as pages
from config.clock import now


class SignIn(LoginView):
    """The sign-in page; where the demo was loaded, it offers the demo's accounts."""

    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        accounts = [
            {"username": person.username, "password": people.PASSWORD, "role": person.does}
            for person in people.accounts()
        ]
        return super().get_context_data(demo_accounts=accounts, **kwargs)


@login_required
def search(request: HttpRequest) -> HttpResponse:
    """Go straight to what is meant where that is clear; else list what fits."""
    found = pages.find(request.user, words=request.GET.get("q", ""), at=now())
    if found.budget:
        return redirect("budget", path=found.budget.path)
    if found.job:
        return redirect("job", pk=found.job.pk)
    return render(request, "search.html", {"found": found, "q": found.words})


def icon(request: HttpRequest) -> HttpResponse:
    """Where browsers look for an icon that a page doesn't name, as the admin's and the API's."""
    return redirect(static("icon.svg"))
