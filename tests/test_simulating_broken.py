"""Figures of a simulation that can't be kept; apart from tests whose rows stay between them."""

import pytest

from allocator.simulating import asking, results
from tests import factories as make
from tests.pages_day import NOW
from tests.test_simulating import TRACE, run

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
def test_figures_that_can_t_be_kept_are_an_error_and_not_played_again(monkeypatch):
    make.make_tree()
    user = make.make_user("root", is_superuser=True)
    asking.ask(by=user, now=NOW, window=None, trace=TRACE, nodes="2x8", equal=True)
    monkeypatch.setattr(results, "result", lambda *_: {"occupancy": float("nan")})
    row = run()
    assert (row.state, row.attempts, row.result) == ("failed", 1, None)
    assert row.error == "An error of ours ended it; the worker's log has it."
