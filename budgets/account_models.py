"""What signing in needs beside accounts: tries that may fail, and passwords that hold once."""

from django.conf import settings
from django.db import models


class SignInTry(models.Model):
    """A try to sign in that has not succeeded; kept as long as it counts.

    ``account`` is a SHA-256 of what was typed, since people type passwords there; ``address`` is
    where it came from, of IPv6 the network.
    """

    account = models.CharField(max_length=64)
    address = models.CharField(max_length=64)
    at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = (models.Index(fields=["address", "at"]),)

    def __str__(self) -> str:
        return f"try from {self.address} at {self.at}"


class SpokenLanguage(models.Model):
    """In which language somebody last read pages: what is written to them speaks it."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="spoken_language",
    )
    language = models.CharField(max_length=10)

    def __str__(self) -> str:
        return f"{self.language} to {self.user_id}"


class OneTimePassword(models.Model):
    """That an account's password was made by somebody else: it only serves to choose another."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="one_time_password"
    )
    ends_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"of {self.user_id} until {self.ends_at}"
