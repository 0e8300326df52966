"""What the acceptance tests share: the API for an administrator, and what it says of a budget."""

from datetime import timedelta

from rest_framework.test import APIClient

from tests import factories as make

MINUTE = timedelta(minutes=1)
API = "/api/v1/budgets/"


def root_api() -> APIClient:
    client = APIClient()
    client.force_authenticate(make.make_user(is_superuser=True, is_staff=True))
    return client


def figures_of(client: APIClient, path: str) -> dict[str, int]:
    found: dict[str, int] = client.get(f"{API}{path}/").json()["figures"]
    return found
