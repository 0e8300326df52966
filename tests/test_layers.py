"""The import rule of the design, on this checkout and on trees that break it."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps

from tests.layers import LINE, violations

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.once


def test_imports_point_only_down_the_line() -> None:
    assert violations(ROOT) == []


def test_foreign_keys_point_only_down_the_line() -> None:
    upward = [
        f"{model._meta.label}.{field.name}"
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if model._meta.app_label in LINE
        and field.related_model is not None
        and (field.many_to_one or field.one_to_one or field.many_to_many)
        and field.concrete
        and field.related_model._meta.app_label in LINE
        and LINE.index(field.related_model._meta.app_label) > LINE.index(model._meta.app_label)
    ]
    assert upward == []


def test_core_imports_where_django_cannot_be_imported() -> None:
    files = [path for app in LINE for path in (ROOT / app).glob("core/**/*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    assert "allocator.core.problem" in names
    program = (
        "import importlib, sys\n"
        "for name in ('django', 'rest_framework', 'celery'): sys.modules[name] = None\n"
        f"for name in {names!r}: importlib.import_module(name.removesuffix('.__init__'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


PLANTED = [
    # file, its text, what the checker must say of it
    ("budgets/shares.py", "from ledger.models import Entry", "may not import ledger.models"),
    ("budgets/shares.py", "from ledger import models", "may not import ledger.models"),
    ("clusters/models.py", "def f():\n    import allocator.cycle", "may not import allocator"),
    ("ledger/services.py", "from ledger.api import X", "may not import the interface ledger.api"),
    ("ledger/services.py", "from .api import X", "may not import the interface ledger.api"),
    ("ledger/services.py", "from . import api", "may not import the interface ledger.api"),
    ("budgets/views.py", "from ledger.views import X", "may not import each other (ledger.views)"),
    ("ledger/services.py", "import rest_framework", "may not import rest_framework"),
    ("ledger/services.py", "from config import env", "nothing imports config but itself"),
    ("client/cli.py", "from budgets.models import X", "client stands apart"),
    ("allocator/core/solve.py", "import django.db", "core may not import django.db"),
    ("allocator/core/solve.py", "import sqlite3", "core may not import sqlite3"),
    ("allocator/core/solve.py", "from ortools.sat import x", "core may not import ortools.sat"),
    ("allocator/core/solve.py", "from ..snapshot import take", "core may not import allocator.sn"),
    ("allocator/cycle.py", "import datetime\ndatetime.datetime.now()", "may not read the clock"),
    ("allocator/cycle.py", "from django.utils import timezone\ntimezone.now", "read the clock"),
    ("budgets/models.py", 'x = models.ForeignKey("ledger.Entry")', "no foreign key to ledger.E"),
    ("budgets/models.py", 'x = models.OneToOneField(to="ledger.Entry")', "no foreign key to"),
]
ALLOWED = [
    ("allocator/core/exact.py", "from ortools.sat.python import cp_model"),
    ("allocator/core/solve.py", "import numpy\nfrom forecasting.core import bands"),
    ("allocator/cycle.py", "from ledger import services\nfrom clusters.models import Pool"),
    ("budgets/views.py", "from ledger import reports\nfrom budgets.api import X"),
    ("budgets/api.py", "from config.clock import now"),
    ("config/urls.py", "from ledger.views import X\nfrom config.env import y"),
    ("budgets/views.py", "from django.utils import timezone\ntimezone.now()"),
    ("ledger/models.py", 'x = models.ForeignKey("budgets.Budget")'),
]


def _plant(root: Path, file: str, text: str) -> None:
    for name in ("ledger/api.py", "ledger/models.py", "ledger/views.py", "allocator/snapshot.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)


@pytest.mark.parametrize(("file", "text", "said"), PLANTED)
def test_a_planted_violation_is_named(tmp_path: Path, file: str, text: str, said: str) -> None:
    _plant(tmp_path, file, text)
    found = violations(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(f"{file}:")
    assert said in found[0]


@pytest.mark.parametrize(("file", "text"), ALLOWED)
def test_what_the_table_allows_passes(tmp_path: Path, file: str, text: str) -> None:
    _plant(tmp_path, file, text)
    assert violations(tmp_path) == []
