"""The overview and the plan where there is no cluster, no period or no plan yet."""

from allocator.models import Cycle
from budgets.models import Budget, Period
from tests import factories as make
from tests.pages_day import NOW, stand_at
from tests.pages_world import client_of, text_of


def test_an_empty_installation_shows_the_first_steps(db, monkeypatch):
    stand_at(monkeypatch, NOW)
    root = make.make_user("root", is_superuser=True)
    text = text_of(client_of(root).get("/"))
    assert "No cluster is connected yet." in text
    assert "Connect a cluster" in text


def test_without_a_period_it_says_so(db, monkeypatch):
    stand_at(monkeypatch, NOW)
    make.make_nodes(make.make_pool("h100"), 2)
    make.make_tree()
    root = make.make_user("root", is_superuser=True)
    text = text_of(client_of(root).get("/"))
    assert "No period is active" in text
    assert "No job waits." in text
    assert "Not reported 16" in text
    assert Budget.objects.count() == 6


def test_without_a_plan_or_a_cluster_the_page_says_so(db, monkeypatch):
    stand_at(monkeypatch, NOW)
    root = make.make_user("root", is_superuser=True)
    text = text_of(client_of(root).get("/plan"))
    assert "No cluster is connected yet" in text
    make.make_nodes(make.make_pool("h100"), 2)
    make.make_tree()
    assert Cycle.objects.count() == 0
    text = text_of(client_of(root).get("/plan"))
    assert "No plan has been made yet" in text
    assert "No cycle has been committed yet." in text
    assert client_of(root).get("/plan.json").json()["bars"] == []
    assert "Nothing to list" in text_of(client_of(root).get("/plan?view=table"))


def test_the_first_steps_lead_on_one_by_one(db, monkeypatch):
    """Each with a link for who may do it; done, the guide is gone."""
    stand_at(monkeypatch, NOW)
    root = make.make_user("root", is_superuser=True, is_staff=True)
    reader = make.make_user("reader")

    def present(user):
        answer = client_of(user).get("/")
        steps = answer.context["page"].first_steps
        if steps is None:
            assert "First steps" not in text_of(answer)
            return None
        (one,) = [step for step in steps if step.is_current]
        assert all(step.is_done for step in steps[: one.number - 1])
        assert ("An administrator does this." in text_of(answer)) is not bool(one.url)
        return one.number, one.url

    assert present(root) == (1, "/admin/clusters/cluster/add/")
    assert present(reader) == (1, "")
    pool = make.make_pool("h100")
    assert present(root) == (1, "/settings/pools")
    assert present(reader) == (1, "")
    make.make_nodes(pool, 2)
    assert present(root) == (2, "/api/v1/docs")
    tree = make.make_tree()
    assert present(root) == (3, "/periods")
    make.make_role(reader, tree["orlo"], "administrator")
    period = make.make_period(status="approved")
    assert present(reader) == (3, f"/periods/{period.pk}")
    Period.objects.filter(pk=period.pk).update(status="active")
    assert present(root) is None
    assert present(reader) is None
