"""The address of this test's database, for the processes of its own that a test starts."""

from typing import Any
from urllib.parse import quote, urlencode

from django.db import connection


def database_url() -> str:
    """Return what DATABASE_URL must be for another process to meet this test's database."""
    told: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{told['NAME']}"
    who = quote(told["USER"], safe="")
    if told["PASSWORD"]:
        who += ":" + quote(told["PASSWORD"], safe="")
    host, options = str(told["HOST"]), ""
    if host.startswith("/"):  # the folder of a Unix socket is no host name
        host, options = "", "?" + urlencode({"host": host})
    port = f":{told['PORT']}" if told["PORT"] else ""
    return f"postgresql://{who}@{host}{port}/{told['NAME']}{options}"
