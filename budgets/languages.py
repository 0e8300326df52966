"""The language that somebody reads: noted when they choose it, and when they sign in."""

from django.contrib.auth.models import User

from budgets.models import SpokenLanguage
from clusters.saying import ENGLISH


def note(*, user: User, language: str) -> None:
    """Note in which language somebody reads pages from now on."""
    SpokenLanguage.objects.update_or_create(user=user, defaults={"language": language})


def of(user: User) -> str:
    """Return the language to write to somebody in; English until they have read a page."""
    known = SpokenLanguage.objects.filter(user=user).values_list("language", flat=True).first()
    return known or ENGLISH
