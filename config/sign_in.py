"""Passwords: how often they may be tried, from where, and what becomes of one that serves once.

Every way in that takes a password (the page, the API's token, Django's administration) asks the
one backend here, so the rules hold for all of them.
"""

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from budgets import signing_in
from config.clock import now

TOO_MANY, SERVES_ONCE = "too_many", "serves_once"


class TryLater(ValidationError):
    """There were too many tries; the next may come in so many seconds."""

    def __init__(self, seconds: int) -> None:
        minutes = -(-seconds // 60)
        words = ngettext(
            "Too many tries to sign in failed: try again in one minute.",
            "Too many tries to sign in failed: try again in %(n)s minutes.",
            minutes,
        )
        super().__init__(words % {"n": minutes}, code=TOO_MANY)
        self.seconds = seconds


class ServesOnce(ValidationError):
    """The password is right, and only serves to choose another on the sign-in page."""

    def __init__(self, user: User) -> None:
        words = _("This password only serves to choose your own: sign in on the pages once.")
        super().__init__(words, code=SERVES_ONCE)
        self.user = user


class LimitedBackend(ModelBackend):
    """Names and passwords, tried as often as `budgets.signing_in` lets them be."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return whose name and password it is, or None. Raises TryLater, ServesOnce."""
        if username is None or password is None:
            return None
        begun = None
        if request is not None:  # else code asks, not somebody from somewhere
            try:
                begun = signing_in.begin(username=username, address=address_of(request), now=now())
            except signing_in.TooManyTries as many:
                raise TryLater(many.seconds) from None
        found = super().authenticate(request, username, password, **kwargs)
        if not isinstance(found, User) or signing_in.is_over(found, now=now()):
            return None
        if begun is not None:
            begun.succeeded()
        if signing_in.serves_once(found):
            raise ServesOnce(found)
        return found


def address_of(request: HttpRequest) -> str:
    """Return where a request came from: past `PROXIES` proxies; of IPv6 its /64 network.

    X-Forwarded-For is believed only as far as the installation's own proxies wrote it.
    """
    sender = request.META.get("REMOTE_ADDR", "")
    forwarded = [one.strip() for one in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    if settings.PROXIES and forwarded[-1]:
        sender = forwarded[-min(settings.PROXIES, len(forwarded))]
    try:
        address = ip_address(sender)
    except ValueError:
        return "unknown"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), 64), strict=False))
    return str(address)
