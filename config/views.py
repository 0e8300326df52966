"""Pages that belong to no app: signing in, and the search field."""

import sys
from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.utils.translation import get_language
from django.views import defaults
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from django.views.i18n import set_language

from allocator.demo import people
from allocator.pages import search as pages
from budgets import languages, signing_in
from config.clock import now
from config.language import ENGLISH
from config.migrated import what_to_run
from config.problems import CONTENT_TYPE
from config.sign_in import ServesOnce, TryLater

CHOOSES = "chooses_password"  # in the session: who may set a password, and against which


class SignIn(LoginView):
    """The sign-in page; where the demo was loaded, it offers the demo's accounts."""

    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        accounts = [
            {"username": person.username, "password": people.PASSWORD, "role": person.does}
            for person in people.accounts()
        ]
        return super().get_context_data(demo_accounts=accounts, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        languages.note(user=form.get_user(), language=get_language() or ENGLISH)
        return super().form_valid(form)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Say why; after too many tries with 429; whose password serves once chooses another."""
        errors = form.non_field_errors().as_data()
        once = next((error for error in errors if isinstance(error, ServesOnce)), None)
        if once is not None:
            self.request.session.cycle_key()
            self.request.session[CHOOSES] = [once.user.pk, once.user.get_session_auth_hash()]
            return redirect("password")
        answer = super().form_invalid(form)
        later = next((error for error in errors if isinstance(error, TryLater)), None)
        if later is not None:
            answer.status_code = 429
            answer["Retry-After"] = str(later.seconds)
        return answer


def language(request: HttpRequest) -> HttpResponse:
    """Have pages speak another language from now on, and what is written to the reader as well."""
    answer = set_language(request)
    chosen = answer.cookies.get(settings.LANGUAGE_COOKIE_NAME)
    if chosen is not None and isinstance(request.user, User):
        languages.note(user=request.user, language=chosen.value)
    return answer


@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters()
@never_cache
def password(request: HttpRequest) -> HttpResponse:
    """Choose a password in place of one that somebody else made."""
    user = _chooser(request)
    if user is None:
        return redirect("sign-in")
    form = SetPasswordForm(user, request.POST or None)
    if form.is_valid():
        signing_in.choose_password(user=user, password=form.cleaned_data["new_password1"])
        del request.session[CHOOSES]
        login(request, user)
        return redirect("overview")
    context = {"form": form, "account": user.username}
    return render(
        request, "registration/password.html", context, status=422 if form.errors else 200
    )


def _chooser(request: HttpRequest) -> User | None:
    """Return who signed in with a password that serves once, and is still the same."""
    pk, known = request.session.get(CHOOSES, (None, ""))
    user = User.objects.filter(pk=pk, is_active=True).first() if pk else None
    return user if user is not None and user.get_session_auth_hash() == known else None


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


def failed(request: HttpRequest) -> HttpResponse:
    """Answer where something failed: 503 and what to run where the database isn't migrated."""
    sentence = what_to_run() if isinstance(sys.exc_info()[1], DatabaseError) else None
    if sentence is None:
        return defaults.server_error(request)
    if request.path.startswith("/api/"):
        problem = {"type": "about:blank", "title": "Service Unavailable", "status": 503}
        told = problem | {"detail": sentence, "errors": []}
        return JsonResponse(told, status=503, content_type=CONTENT_TYPE)
    return HttpResponse(sentence, status=503, content_type="text/plain; charset=utf-8")
