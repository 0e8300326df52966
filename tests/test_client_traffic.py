"""The client's calls and commands about traffic, against a real server."""

import pytest

from client import Client, Problem, token_for
from client.__main__ import main
from client.api import RATES_AT_ONCE
from forecasting.models import TrafficBucket
from tests import factories as make

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


@pytest.fixture
def job(cast, tree, settings):
    settings.TRAFFIC_KEPT_DAYS = 100_000  # whatever the wall clock says
    return make.make_service(tree["orlo/science/petrel"], profile=(2,) * 12 + (9,) * 12)


@pytest.fixture
def run(live_server, job, capsys):
    """Return a function that runs a command as the member: (exit status, stdout, stderr)."""
    token = token_for(live_server.url, username="member", password="secret")

    def command(*words):
        name, *rest = words
        status = main([name, "--url", live_server.url, "--token", token, *rest])
        return status, *capsys.readouterr()

    return command


def test_a_file_is_sent_and_shown(run, job, tmp_path):
    file = tmp_path / "traffic.csv"
    file.write_text("at,rate\n2020-09-30T00:00:00Z,1.5\n2020-09-30T00:10:00Z,0\n")
    sent = ("traffic", str(job.pk), str(file), "--step-minutes", "10")
    assert run(*sent) == (0, "2 new, 0 changed, 0 same, 0 too old\n", "")
    assert run(*sent)[1] == "0 new, 0 changed, 2 same, 0 too old\n"
    assert run("traffic", str(job.pk))[1] == "at  a second\n", "nothing in the last 7 days"
    status, _, told = run("traffic", str(job.pk), str(tmp_path / "none.csv"))
    assert (status, "No such file" in told) == (1, True)
    file.write_text("when,rate\n1,2\n")
    assert "no CSV file with columns at and rate" in run("traffic", str(job.pk), str(file))[2]


def test_a_long_list_is_sent_in_parts(monkeypatch):
    sent = []

    def answer(self, method, address, *, body):
        sent.append((len(body["traffic"]), body.get("step_minutes")))
        return {"new": len(body["traffic"]), "same": 0}

    monkeypatch.setattr(Client, "_send", answer)
    client = Client("http://127.0.0.1:1", token="")
    rates = [{"at": "2020-09-30T00:00:00Z", "rate": 1}] * (2 * RATES_AT_ONCE + 1)
    found = client.send_traffic(1, rates, step_minutes=5)
    assert sent == [(RATES_AT_ONCE, 5), (RATES_AT_ONCE, 5), (1, 5)]
    assert found == {"new": 2 * RATES_AT_ONCE + 1, "same": 0}


def test_a_service_is_calibrated_from_the_command_line(run, job):
    status, shown, _ = run("calibrate", str(job.pk), "--on", "--rate", "12.5", "--most", "8")
    assert status == 0
    assert "It follows its declared profile; 2 to 9 GPUs in the next 24 h." in shown
    assert "One GPU does 12.5 a second, declared." in shown
    assert "There is no traffic yet" in shown
    job.service.refresh_from_db()
    assert (job.service.calibrated, job.service.most_gpus) == (True, 8)
    with pytest.raises(SystemExit):
        run("calibrate", str(job.pk), "--rate", "nan")
    run("calibrate", str(job.pk), "--off", "--rate", "measured")
    job.service.refresh_from_db()
    assert not job.service.calibrated
    assert "One GPU does" not in run("calibrate", str(job.pk))[1]
    status, _, told = run("calibrate", str(job.pk), "--now")
    assert (status, "There is no traffic yet" in told) == (1, True)
    assert not TrafficBucket.objects.exists()


def test_a_stranger_is_told_that_there_is_no_such_job(live_server, job):
    token = token_for(live_server.url, username="stranger", password="secret")
    with pytest.raises(Problem, match="There is no such job"):
        Client(live_server.url, token=token).calibration(job.pk)
