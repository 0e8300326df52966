"""How often somebody may try to sign in, and passwords that serve once.

A try is written down before its password is looked at and struck off when it succeeds. So of
tries at the same time, in whichever processes, no more get through than one after another.
"""

import math
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from django.contrib.auth.models import User

from budgets.models import OneTimePassword, SignInTry

WINDOW = timedelta(minutes=15)
OF_ACCOUNT = 10  # tries of one account from one address within the window
OF_ADDRESS = 100  # of all accounts from one address
ONE_TIME = timedelta(days=7)  # how long a password that somebody else made may be used
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that are taken for another


class TooManyTries(Exception):
    """So many tries failed that the next may come at `again_at`."""

    def __init__(self, again_at: datetime, now: datetime) -> None:
        super().__init__(f"too many tries until {again_at}")
        self.seconds = max(1, math.ceil((again_at - now).total_seconds()))


@dataclass(frozen=True)
class Try:
    """A try that may go on; call `succeeded` once the password was right."""

    account: str
    address: str

    def succeeded(self) -> None:
        """Strike off what failed of this account from this address."""
        SignInTry.objects.filter(account=self.account, address=self.address).delete()


def begin(*, username: str, address: str, now: datetime) -> Try:
    """Write a try down. Raises TooManyTries, and keeps none, where there were too many."""
    account = sha256(username.casefold().encode(errors="replace")).hexdigest()
    SignInTry.objects.filter(at__lte=now - WINDOW).delete()
    made = SignInTry.objects.create(account=account, address=address, at=now)
    there = SignInTry.objects.filter(address=address, at__gt=now - WINDOW).exclude(pk=made.pk)
    before = list(there.order_by("-at").values_list("account", "at")[:OF_ADDRESS])
    of_account = [at for name, at in before if name == account]
    full = [
        tries[most - 1]
        for tries, most in ((of_account, OF_ACCOUNT), ([at for _, at in before], OF_ADDRESS))
        if len(tries) >= most
    ]
    if full:
        made.delete()
        raise TooManyTries(max(full) + WINDOW, now)
    return Try(account, address)


def forget(user: User) -> None:
    """Strike off what failed for an account from anywhere."""
    account = sha256(user.username.casefold().encode(errors="replace")).hexdigest()
    SignInTry.objects.filter(account=account).delete()


def give_one_time_password(*, user: User, now: datetime) -> str:
    """Set a password that serves once, to choose another, and return it. It is kept nowhere."""
    password = "-".join("".join(secrets.choice(LETTERS) for _ in range(5)) for _ in range(4))
    user.set_password(password)
    user.save(update_fields=["password"])
    OneTimePassword.objects.update_or_create(user=user, defaults={"ends_at": now + ONE_TIME})
    forget(user)
    return password


def serves_once(user: User) -> bool:
    """Say whether the account's password was made by somebody else."""
    return OneTimePassword.objects.filter(user=user).exists()


def is_over(user: User, *, now: datetime) -> bool:
    """Say whether a password that serves once has been left lying too long."""
    return OneTimePassword.objects.filter(user=user, ends_at__lte=now).exists()


def choose_password(*, user: User, password: str) -> None:
    """Set the password that a person chose; nothing is to be chosen any more."""
    user.set_password(password)
    user.save(update_fields=["password"])
    OneTimePassword.objects.filter(user=user).delete()
