"""The client and its commands against a real server."""

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from allocator import cycle
from budgets.models import Request
from client import Client, Problem, tables, token_for
from client.__main__ import EXAMPLES, main
from client.values import count, instant
from clusters.counting import plural
from clusters.models import Pool, Window
from config import clock
from ledger import services as ledger
from tests import factories as make
from workloads.models import Job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]
PETREL = "orlo/science/petrel"
ROOT = Path(__file__).parents[1]


@pytest.fixture
def url(live_server, cast, tree):
    """A server with 16 GPUs and an open period around the wall clock."""
    make.make_nodes(make.make_pool("h100"), 2)
    year = clock.now().replace(month=1, day=1, hour=0, minute=0, second=0)
    make.make_period(starts_at=year, ends_at=year.replace(year=year.year + 1))
    for path in ("orlo", "orlo/science", PETREL):  # spendable is the least of all levels
        make_grant(tree[path], cast["root"], key=f"grant:{path}")
    return live_server.url


def make_grant(budget, author, *, key):
    amount = {"amount_mgpus": 10**12, "note": "for tests", "now": clock.now()}
    ledger.grant(budget=budget, author=author, key=key, **amount)


@pytest.fixture
def member(url):
    return Client(url, token=token_for(url, username="member", password="secret"))


@pytest.fixture
def run(url, member, capsys):
    """Return a function that runs a command as the member: (exit status, stdout, stderr)."""

    def command(*words):
        name, *rest = words
        shared = ["--url", url, "--token", member._token]
        status = main([name, *shared, *rest])
        return status, *capsys.readouterr()

    return command


def test_a_job_is_submitted_shown_listed_and_cancelled(member):
    asked = {"budget": PETREL, "name": "train", "kind": "training", "gpus": 8}
    job = member.submit(**asked, idempotency_key="once")
    assert member.submit(**asked, idempotency_key="once")["id"] == job["id"]
    assert member.show(job["id"])["state"] == "queued"
    assert [j["id"] for j in member.jobs(mine=True, states=["queued", "running"])] == [job["id"]]
    assert list(member.jobs(states=["completed"])) == []
    assert member.cancel(job["id"])["state"] == "cancelled"
    assert Job.objects.get().state == "cancelled"


def test_lists_run_over_pages(member, tree):
    for _ in range(150):
        make.make_job(tree[PETREL], state="completed", ended_at=make.T0)
    found = [job["id"] for job in member.jobs(budget="orlo/science")]
    assert found == sorted(set(found), reverse=True)
    assert len(found) == 150


def test_tree_budget_burn_nodes_and_me_answer(member):
    assert [b["path"] for b in member.tree()["budgets"]] == [PETREL]
    actions = member.budget(PETREL)["actions"]
    assert actions[:4] == ["view", "submit", "cancel_own", "extend_own"]
    assert "edit_shares" not in actions
    assert member.burn(PETREL)["total"]["granted_mgpus"] == 10**12
    assert [node["name"] for node in member.nodes()] == ["h100-n0", "h100-n1"]
    assert member.me()["roles"] == {PETREL: "member"}


def test_shares_are_proposed_and_approved(url):
    manager = Client(url, token=token_for(url, username="manager", password="secret"))
    proposal = manager.propose_shares(
        "orlo/science",
        shares={"petrel": 70_000, "auk": 30_000},
        overrides={"auk": {"h100": 10_000}},
        reason="petrel needs more",
        base_version=1,
        effective_at="2100-01-01T00:00:00Z",
    )
    assert manager.approve_shares(proposal["id"])["status"] == "approved"
    assert [one["version"] for one in manager.change_sets("orlo/science")] == [2, 1]


def test_a_refusal_says_what_to_change(member):
    with pytest.raises(Problem, match="Ask for a power of two") as refused:
        member.submit(budget=PETREL, name="x", kind="training", gpus=3)
    assert refused.value.status == 400
    assert refused.value.body["errors"][0]["field"] == "gpus"
    with pytest.raises(Problem, match="no such job") as hidden:
        member.show(999)
    assert hidden.value.status == 404


def test_wrong_addresses_and_tokens_are_told_in_a_sentence(url):
    with pytest.raises(Problem, match="no address of a server"):
        Client("ftp://host", token="")
    with pytest.raises(Problem, match="copy it again"):
        Client(url, token="a\nb")
    with pytest.raises(Problem, match=r"Invalid token\. Set ALLOTMENT_TOKEN"):
        Client(url, token="abc").me()
    with pytest.raises(Problem, match=r"No answer from 127\.0\.0\.1:9: .* Does it run there\?"):
        Client("http://127.0.0.1:9", token="abc").me()
    with pytest.raises(Problem, match=r"don't fit, or .* Check the user name"):
        token_for(url, username="member", password="wrong")
    with pytest.raises(Problem, match=r"answered 404|not as Allotment"):
        Client(f"{url}/elsewhere", token="abc").me()


# --- Commands -----------------------------------------------------------------------------------


def test_commands_print_tables(run, tree):
    words = (PETREL, "train", "--gpus", "8", "--hours", "2", "--", "python", "a b.py", "--lr", "1")
    status, out, _ = run("submit", *words)
    job = Job.objects.get()
    assert (status, job.command, job.expected_duration_s) == (0, "python 'a b.py' --lr 1", 7200)
    assert f"job       {job.pk} train" in out
    assert "takes     1:00 – 2:00 – 3:00" in out
    cycle.run(at=clock.now(), trigger="test")
    assert "h100-n0×8" in run("show", str(job.pk))[1]
    assert run("jobs", "--mine")[1].splitlines()[1].split()[:6] == [
        *(str(job.pk), "train", PETREL, "training", "8", "running"),
    ]
    assert "277,777.78" in run("tree")[1]
    assert "granted" in run("burn", PETREL)[1]
    assert f"{job.pk}  train" in run("plan")[1]
    assert "h100-n1" in run("nodes")[1]
    assert run("cancel", str(job.pk))[0] == 0


def test_commands_print_json_on_request(run):
    status, out, _ = run("tree", "--format", "json")
    assert (status, json.loads(out)["budgets"][0]["path"]) == (0, PETREL)
    service = ("svc", "--kind", "realtime", "--profile", ",".join(["2"] * 24), "--swap-cap", "2")
    status, out, _ = run("submit", PETREL, *service, "--format", "json")
    assert json.loads(out)["service"]["profile"] == [2] * 24


def test_an_administrator_drains_nodes_and_gives_them_back(run, url, capsys, tree):
    run("submit", PETREL, "train", "--gpus", "8", "--hours", "2")
    cycle.run(at=clock.now(), trigger="test")
    admin = Client(url, token=token_for(url, username="admin", password="secret"))
    words = ("--url", url, "--token", admin._token)
    asked = ("h100-n[0-1]", "--reason", "firmware")
    assert main(["drain", *words, *asked, "--preview"]) == 0
    preview = capsys.readouterr().out
    assert list(admin.windows()) == []
    assert main(["drain", *words, *asked]) == 0
    told = capsys.readouterr().out
    (row,) = admin.windows(states=["open"])
    window = admin.window(row["id"])
    free = window["outlook"]["free_from"]
    for out in (preview, told):
        assert f"free from  {free}" in out
        assert f"train #{Job.objects.get().pk}, protected until {free}" in out
    assert f"window     {row['id']}, open" in told
    assert f"{row['id']}  open" in run("drains")[1]
    assert free in run("nodes")[1]
    status, _, err = run("undrain", str(row["id"]))
    assert (status, "administrators" in err) == (1, True)
    Window.objects.update(starts_at=make.T0)
    assert main(["undrain", *words, str(row["id"])]) == 0
    assert f"window  {row['id']}, over" in capsys.readouterr().out
    assert main(["drains", *words]) == 0
    assert "firmware" not in capsys.readouterr().out
    late = ("--from", "2100-01-01T00:00:00Z", "--reason", "later")
    assert main(["drain", *words, "h100-n0", *late, "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert admin.undrain(made["id"])["state"] == "called_off"
    assert "called_off" in run("drains", "--all")[1]


PERSON = {"as a member": "member", "as a manager": "manager", "as an administrator": "admin"}


def test_the_examples_of_the_help_do_for_whom_they_are_shown(run, url, capsys, tree):
    """All but those about a session that runs, and about a service's traffic."""
    for path in ("orlo", "orlo/science", "orlo/science/auk"):
        make_grant(tree[path], User.objects.get(username="root"), key=f"more:{path}")
    who, done = "", []
    for line in EXAMPLES.splitlines():
        who = next((one for said, one in PERSON.items() if said in line), who)
        name, *words = shlex.split(line.partition("python3 -m client ")[2]) or [""]
        if name in ("", "token", "extend", "traffic", "calibrate"):
            continue
        client = Client(url, token=token_for(url, username=who, password="secret"))
        ids = {"17": Job.objects.first, "3": Request.objects.first}
        words = [str(ids[word]().pk) if word in ids else word for word in words]
        words = [word.replace("h100-n[01-06]", "h100-n[0-1]") for word in words]
        assert main([name, "--url", url, "--token", client._token, *words]) == 0, line
        done.append(name)
    assert {"submit", "show", "urgency", "burn", "ask", "decide", "drain"} <= set(done)


def test_an_instant_may_be_counted_from_now(capsys):
    for text, length in (("+14d", timedelta(days=14)), ("+1h30m", timedelta(minutes=90))):
        before = datetime.now(UTC).replace(microsecond=0)
        assert before <= datetime.fromisoformat(instant(text)) - length <= datetime.now(UTC)
    assert instant("2026-12-01T00:00:00Z") == "2026-12-01T00:00:00Z"
    for wrong in ("+", "+soon", "+0h"):
        with pytest.raises(SystemExit, match="2"):
            main(["drain", "n", "--reason", "x", "--until", wrong])
        assert "no time from now such as +14d" in capsys.readouterr().err


def test_a_refused_command_prints_one_line_and_exits_1(run):
    status, out, err = run("submit", PETREL, "x", "--gpus", "3")
    assert (status, out) == (1, "")
    assert err == "allotment: gpus: Ask for a power of two: 2 or 4 GPUs, not 3.\n"


@pytest.mark.parametrize(
    "words", [["fly"], ["show", "x"], ["submit", "a", "b", "--hours", "nan"], []]
)
def test_a_misused_command_exits_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: python3 -m client" in capsys.readouterr().err


def test_it_runs_without_anything_installed(url):
    """-S and -I leave out site-packages: the standard library is all it has."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import client.__main__ as m; m.main()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, "token", "member", "--url", url],
        env={**os.environ, "ALLOTMENT_PASSWORD": "secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, len(done.stdout.strip())) == (0, "", 40)


@pytest.mark.parametrize(
    ("mgpus", "shown"),
    [
        (0, "0.00"),
        (3_600_000, "1.00"),
        (18_000, "0.01"),
        (17_999, "0.00"),
        (-18_000, "-0.01"),
        (3_600_000 * 1234, "1,234.00"),
        (None, "–"),
    ],
)
def test_credits_are_rounded_to_hundredths(mgpus, shown):
    assert tables.credits(mgpus) == shown


def test_what_others_named_cannot_draw_on_the_terminal():
    assert "\x1b" not in tables.table(("a",), [("\x1b[2Jx",)])


def test_a_job_is_estimated_without_being_submitted(member, run, tmp_path):
    Pool.objects.update(gpu_type="H100")
    (tmp_path / "work.json").write_text('{"parameters": "7B", "tokens": "1B"}')
    work = json.loads((tmp_path / "work.json").read_text())
    found = member.estimate(budget=PETREL, kind="training", work=work)
    assert (found["gpus"], found["fits"]) == (found["options"][0]["gpus"], True)
    asked = ("--work", f"@{tmp_path}/work.json", "--deadline", "2199-01-01T00:00:00Z")
    code, out, _ = run("estimate", PETREL, *asked)
    assert (code, "cheapest, in time" in out) == (0, True)
    assert tables.duration(found["p50_s"]) in out
    assert not Job.objects.exists()


def test_a_reader_that_leaves_gets_no_traceback(url, member):
    """As head does, before the answer is written."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "client", "tree", "--url", url, "--token", member._token],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_one_of_a_thing_is_told_as_one():
    assert [count(number, "GPU") for number in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]
    assert [plural(number, "entry", "entries") for number in (1, 1200)] == [
        "1 entry",
        "1,200 entries",
    ]
