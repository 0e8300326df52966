"""One GPU is never "1 GPUs"."""

import re

import pytest
from django.http import HttpResponse

from allocator import cycle
from tests import factories as make
from tests.pages_world import at, client_of, text_of
from workloads.models import Run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("gpus", "words"), [(1, "for one GPU"), (8, "for 8 GPUs")])
def test_a_job_waits_for_one_gpu_or_several(tree, gpus, words):
    user = make.make_user()
    make.make_role(user, tree["orlo/science/petrel"])
    make.make_nodes(make.make_pool("h100"), 2)
    job = make.make_job(tree["orlo/science/petrel"], user=user, gpus=gpus)
    told = text_of(client_of(user).get(f"/jobs/{job.pk}"))
    assert words in told
    assert "1 GPUs" not in told


PLURAL_OF_ONE = re.compile(
    r"\S* \S* (?<![\d.,])1 (?:GPUs|jobs|runs|days|nodes|budgets|timesteps)\b.{0,30}"
)
ENDS = re.compile(r"</(dd|dt|td|th|li|p|h[1-4]|div|text)>")


def test_no_page_says_one_of_several(tree, monkeypatch):
    """A cluster of one GPU, with one job on it and one that waits for it."""
    user = make.make_user("root", is_superuser=True)
    pool = make.make_pool("h100")
    make.make_nodes(pool, 1, gpus=1)
    petrel = tree["orlo/science/petrel"]
    given = {"user": user, "gpus": 1, "when_unfunded": "run"}
    jobs = [make.make_job(petrel, **given) for _ in range(2)]
    now = make.T0 + make.HOUR
    at(monkeypatch, now)
    made = cycle.run(at=now, trigger="tick")
    assert made is not None
    assert Run.objects.count() == 1
    client = client_of(user)
    urls = ["/", "/jobs", "/plan", "/nodes", "/budgets", "/cycles", f"/cycles/{made.pk}"]
    urls += [f"/jobs/{job.pk}" for job in jobs]
    wrong = {url: PLURAL_OF_ONE.findall(_apart(client.get(url))) for url in urls}
    assert {url: found for url, found in wrong.items() if found} == {}
    assert "one job asks for 1 GPU" in text_of(client.get("/"))
    assert "One job runs on 1 GPU" in text_of(client.get("/jobs"))


def _apart(response: HttpResponse) -> str:
    """Return what is read, with a mark between what stands in cells beside each other."""
    response.content = ENDS.sub(" · ", response.content.decode())
    return text_of(response)
