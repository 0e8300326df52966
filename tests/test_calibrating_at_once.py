"""Two people who save a service's calibration at once: what was said last is in force."""

from decimal import Decimal

import pytest

from forecasting import calibrating
from forecasting import service_profiles as profiles
from forecasting.models import ServiceProfile
from tests import factories as make
from tests.test_calibrating import NOW
from tests.test_calibrating import calibrated as calibrated
from tests.test_calibrating import job as job
from workloads.models import Service

pytestmark = pytest.mark.django_db


def change(job, **asked):
    service = Service.objects.get(pk=job.service.pk)
    return calibrating.change(service=service, by=make.someone(), now=NOW, **asked)


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something once, after a profile was made and before it is written."""
    make_one, deeds = calibrating.make, []

    def made_and_then(service, now):
        made = make_one(service, now)
        if deeds:
            deeds.pop()()
        return made

    monkeypatch.setattr(calibrating, "make", made_and_then)
    return deeds.append


@pytest.mark.parametrize("last", [{"rate_per_gpu": Decimal(20)}, {"most_gpus": 7}])
def test_who_is_slower_puts_no_old_terms_in_force(calibrated, meanwhile, last):
    job = calibrated
    meanwhile(lambda: change(job, **last))
    change(job, rate_per_gpu=Decimal(12))
    service = Service.objects.get(pk=job.service.pk)
    present = profiles.in_force(service)
    assert present == profiles.newest(service)
    assert present.terms == calibrating._terms_now(service)
    assert service.forecast["version"] == present.version
    expected = {"rate_per_gpu": ("per_gpu", 20.0), "most_gpus": ("most", 7)}[next(iter(last))]
    assert present.terms[expected[0]] == expected[1]


def test_a_service_whose_terms_never_rest_gets_a_profile_all_the_same(calibrated, monkeypatch):
    job, make_one, rates = calibrated, calibrating.make, iter(range(11, 99))

    def made_and_then(service, now):
        made = make_one(service, now)
        calibrating.gpu_rates.declare(
            service=service, rate=Decimal(next(rates)), by=make.someone(), now=now
        )
        return made

    monkeypatch.setattr(calibrating, "make", made_and_then)
    calibrating.recalibrate(service=job.service, now=NOW)
    assert ServiceProfile.objects.count() == 2
    assert next(rates) == 11 + calibrating.TRIES
