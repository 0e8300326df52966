"""One GPU is never "1 GPUs"."""

import pytest

from tests import factories as make
from tests.pages_world import client_of, text_of

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
