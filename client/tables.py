"""What the commands print: aligned tables, money in credits (GPU-hours at rate 1)."""

from collections.abc import Callable, Sequence
from typing import Any

from client.values import count

MGPUS_PER_CREDIT = 3600 * 1000
Row = Sequence[object]


def table(heads: Sequence[str], rows: Sequence[Row], *, right: Sequence[int] = ()) -> str:
    """Return aligned columns; those with an index in `right` are set to the right."""
    cells = [[*heads], *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(heads))]
    lines = []
    for line in cells:
        padded = [
            cell.rjust(width) if n in right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def credits(mgpus: int | None) -> str:
    """Return milli-GPU-seconds as credits with two decimals, rounded half away from zero."""
    if mgpus is None:
        return "–"
    sign = "-" if mgpus < 0 else ""
    hundredths = (abs(mgpus) * 100 + MGPUS_PER_CREDIT // 2) // MGPUS_PER_CREDIT
    return f"{sign}{hundredths // 100:,}.{hundredths % 100:02d}"


def percent(thousandths: int | None) -> str:
    """Return thousandths of a percent with one decimal, as tables show shares."""
    if thousandths is None:
        return "–"
    sign = "-" if thousandths < 0 else ""
    tenths = (abs(thousandths) + 50) // 100
    return f"{sign}{tenths // 10}.{tenths % 10} %"


def duration(seconds: int | None) -> str:
    """Return a duration in hours and minutes."""
    if seconds is None:
        return "–"
    minutes = (seconds + 30) // 60
    return f"{minutes // 60}:{minutes % 60:02d}"


def jobs(found: list[dict[str, Any]]) -> str:
    names = ("id", "name", "budget", "kind", "gpus", "state")
    rows = [(*(_shown(j, name) for name in names), _why(j), j["submitted_at"]) for j in found]
    heads = ("id", "name", "budget", "kind", "GPUs", "state", "waits", "submitted")
    return table(heads, rows, right=(0, 4))


def _shown(job: dict[str, Any], name: str) -> Any:
    """Return a field as a list shows it: a session is marked at its kind."""
    return f"{job[name]}, session" if name == "kind" and job["session"] else job[name]


def job(found: dict[str, Any]) -> str:
    """Return one job: its facts, why it waits, and its runs."""
    charges, estimate = found["charges"], found["estimate"]
    facts = [
        ("job", f"{found['id']} {found['name']}"),
        ("budget", found["budget"]),
        ("state", f"{found['state']} since {found['state_since']}"),
        ("asks for", f"{count(found['gpus'], 'GPU')}, {', '.join(found['pools']) or 'any pool'}"),
        ("takes", " – ".join(duration(estimate[name]) for name in ("p10_s", "p50_s", "p90_s"))),
        ("funded", "yes" if found["funded"] else "no"),
        ("charged", f"{credits(charges['charged_mgpus'])} credits"),
        ("held", f"{credits(charges['held_mgpus'])} credits"),
    ]
    facts += _waits(found)
    facts += _session(found)
    shown = table(("", ""), facts).partition("\n")[2]
    return f"{shown}\n\n{_runs(found['runs'])}" if found["runs"] else shown


def tree(found: dict[str, Any]) -> str:
    rows = [_budget(row) for row in found["budgets"]]
    heads = ("budget", "share", "effective", "granted", "settled", "held", "spendable")
    return table(heads, rows, right=range(1, 7))


def burn(found: dict[str, Any]) -> str:
    rows = [_burn_row(row) for row in (*found["rows"], found["total"] | {"path": "total"})]
    heads = ("budget", "granted", "settled", "burned", "busy", "parked", "real time", "unfunded")
    title = f"{found['budget']}, {found['start']} to {found['end']}: credits and GPU-hours"
    return f"{title}\n\n{table(heads, rows, right=range(1, 8))}"


def plan(found: dict[str, Any]) -> str:
    rows = [
        (b["job"], b["name"], b["budget"], f"{b['first_gpu']}+{b['gpus']}", b["start"], b["end"])
        for b in sorted(found["bars"], key=lambda b: (b["start"], b["first_gpu"]))
    ]
    cycle = found["cycle"]
    title = f"cycle {cycle['id']} at {cycle['at']}, to {found['horizon_end']}"
    return f"{title}\n\n{table(('job', 'name', 'budget', 'GPUs', 'from', 'to'), rows, right=(0,))}"


def nodes(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(n["name"], n["pool"], n["gpus"], n["state"], n["held_gpus"], n["free_gpus"]),
            *(n["reason"], n["free_from"]),
        )
        for n in found
    ]
    heads = ("node", "pool", "GPUs", "state", "held", "free", "reason", "free from")
    return table(heads, rows, right=(2, 4, 5))


def requests(found: list[dict[str, Any]]) -> str:
    rows = [
        (r["id"], r["budget"], _asked(r), r["until"], r["status"], r["asked_by"], r["reason"])
        for r in found
    ]
    heads = ("id", "budget", "asks for", "until", "status", "by", "why")
    return table(heads, rows, right=(0, 2))


def request(found: dict[str, Any]) -> str:
    """Return one request: its facts, and what one may decide."""
    facts = [
        ("request", f"{found['id']} for {found['budget']}"),
        ("asks for", f"{_asked(found)}, until {found['until'] or 'further notice'}"),
        ("why", f"{found['reason']} ({found['asked_by']}, {found['created_at']})"),
        ("status", found["status"]),
    ]
    if found["decided_by"]:
        facts.append(("decided", f"{found['decided_by']}, {found['decided_at']} {found['answer']}"))
    if found["decision"]:
        facts.append(
            ("given", f"{_asked(found, 'given_')} out of {found['source'] or 'a sibling'}")
        )
    shown = table(("", ""), facts).partition("\n")[2]
    return f"{shown}\n\n{_choices(found['choices'])}" if found["choices"] else shown


def notices(found: list[dict[str, Any]]) -> str:
    rows = [(n["id"], n["created_at"], "" if n["read_at"] else "new", n["text"]) for n in found]
    return table(("id", "at", "", "notice"), rows, right=(0,))


def windows(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(w["id"], w["state"], " ".join(w["nodes"]), w["starts_at"], w["ends_at"]),
            *((w["free"] or {}).get("free_from"), w["set_by"], w["reason"]),
        )
        for w in found
    ]
    heads = ("id", "state", "nodes", "from", "until", "free from", "by", "reason")
    return table(heads, rows, right=(0,))


def window(found: dict[str, Any]) -> str:
    """Return one window, or what one would be: when each node is free, and because of what."""
    head = [("window", f"{found['id']}, {found['state']}")] if "id" in found else []
    facts = [
        *head,
        ("nodes", f"{len(found['nodes'])}, {count(found['gpus'], 'GPU')}"),
        ("from", found["starts_at"]),
        ("until", found["ends_at"] or "it is ended"),
    ]
    outlook = found["outlook"]
    if outlook is None:
        return table(("", ""), facts).partition("\n")[2]
    facts += [
        ("free from", f"{outlook['free_from']}, likely {outlook['likely_free_from']}"),
        ("stops", count(len(outlook["interrupted"]), "run")),
        ("moves", count(len(outlook["moves"]), "planned start")),
    ]
    shown = table(("", ""), facts).partition("\n")[2]
    rows = [
        (n["node"], n["free_from"], n["likely_free_from"], _held_by(n)) for n in outlook["nodes"]
    ]
    return f"{shown}\n\n{table(('node', 'free from', 'likely', 'held by'), rows)}"


def traffic(found: dict[str, Any]) -> str:
    """What came to a service; or, of what was sent, what became of it."""
    if "traffic" not in found:
        told = (f"{count:,} {name.replace('_', ' ')}" for name, count in found.items())
        return ", ".join(told)
    rows = [(row["at"], f"{row['rate']:g}") for row in found["traffic"]]
    return table(("at", "a second"), rows, right=(1,))


def estimate(found: dict[str, Any]) -> str:
    """Return what a job would take, why, and on which other numbers of GPUs it fits."""
    spans = [duration(found[name]) for name in ("p10_s", "p50_s", "p90_s")]
    fits = {None: "not known", True: "fits", False: "doesn't fit"}[found["fits"]]
    facts = [
        ("GPUs", f"{found['gpus']}"),
        ("takes", " – ".join(spans)),
        ("costs", f"{credits(found['likely_mgpus'])}, at most {credits(found['high_mgpus'])}"),
        ("by", f"{found['method']} ({found['version']})"),
        ("in memory", fits),
        ("hold", f"{credits(found['hold_mgpus'])} credits: {found['verdict']}"),
        ("starts", found["start_text"]),
    ]
    shown = [table(("", ""), facts).partition("\n")[2], "\n".join(found["reasons"])]
    if found["options"]:
        heads = ("GPUs", "likely", "9 in 10", "credits", "")
        rows = [
            (
                *(one["gpus"], duration(one["p50_s"]), duration(one["p90_s"])),
                *(credits(one["likely_mgpus"]), _marks(one)),
            )
            for one in found["options"]
        ]
        shown.append(table(heads, rows, right=(0, 1, 2, 3)))
    return "\n\n".join(shown)


def _marks(option: dict[str, Any]) -> str:
    in_time = {None: "", True: "in time", False: "too late"}[option["in_time"]]
    return ", ".join(filter(None, ["cheapest" * option["cheapest"], in_time]))


def calibration(found: dict[str, Any]) -> str:
    """How a service follows its traffic, and the versions of its profile."""
    rate, demand = found["rate_per_gpu"], found["demand"]
    follows = "follows its traffic" if found["version"] else "follows its declared profile"
    lines = [
        f"It {follows}; {min(demand)} to {count(max(demand), 'GPU')} in the next 24 h.",
        f"One GPU does {rate['rate']:g} a second, {rate['source']}." if rate else "",
        found["problem"],
    ]
    rows = [
        (
            one["version"],
            one["made_at"],
            "in force" if one["in_force_at"] and not one["replaced_at"] else one["reason"] or "was",
            f"{one['tried']['demand_covered']:.1%}",
            f"{one['tried']['over']:.1%}",
        )
        for one in found["versions"]
    ]
    heads = ("version", "made", "", "covers", "over")
    shown = table(heads, rows, right=(0, 3, 4)) if rows else ""
    return "\n".join(line for line in (*lines, shown) if line)


SHOWN: dict[str, Callable[[Any], str]] = {
    "submit": job,
    "estimate": estimate,
    "show": job,
    "cancel": job,
    "extend": job,
    "urgency": job,
    "traffic": traffic,
    "calibrate": calibration,
    "jobs": jobs,
    "tree": tree,
    "burn": burn,
    "requests": requests,
    "ask": request,
    "decide": request,
    "notices": notices,
    "plan": plan,
    "nodes": nodes,
    "drain": window,
    "drains": windows,
    "undrain": window,
}


def _held_by(node: dict[str, Any]) -> str:
    """What holds a node longest, as far as one may know it."""
    if not node["runs"]:
        return "free" if node["is_free"] else "nothing now"
    stay = node["runs"][0]
    name = f"{stay['name']} #{stay['job']}" if stay["job"] else "another budget's work"
    return f"{name}, {stay['how']} until {stay['leaves_by']}"


def _asked(row: dict[str, Any], which: str = "") -> str:
    if row["unit"] == "percent":
        return percent(row[f"{which}thousandths"])
    return f"{credits(row[f'{which}mgpus' if which else 'amount_mgpus'])} cr"


def _choices(choices: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(c["source"], c["decision"], percent(c["share_before"]), percent(c["share_after"])),
            *(credits(c["before_mgpus"]), credits(c["after_mgpus"]), c["problem"]),
        )
        for c in choices
    ]
    heads = ("out of", "", "share", "after", "credits", "after", "why not")
    return table(heads, rows, right=range(2, 6))


def _session(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a session's time box, what it costs, and what came of the last extension."""
    box = found["time_box"]
    facts = []
    if box:
        ends = box["ends_at"] or f"{duration(box['limit_s'])} after its start"
        facts.append(("session", f"ends {ends}, {duration(box['left_s'])} left"))
        parked = "not measured"
        if box["measured_until"]:
            parked = f"{credits(box['parked_mgpus'])} up to {box['measured_until']}"
        facts.append(("so far", f"{credits(box['so_far_mgpus'])} credits, parked: {parked}"))
        if box["ends_at"]:
            rest = f"{credits(box['rest_mgpus'])} to its end"
            facts.append(("costs", f"{credits(box['an_hour_mgpus'])} an hour, {rest}"))
        facts += [("extending", box["cannot"])] if box["cannot"] else []
    if found["extensions"]:
        last = sorted(found["extensions"], key=lambda one: str(one["last_at"]))[-1]
        said = last["refusal"] or f"by {duration(last['more_s'])}, to {last['asked_until']}"
        times = f", {last['again'] + 1} times" if last["again"] else ""
        facts.append(("extended", f"{said} ({last['asked_by']}, {last['last_at']}{times})"))
    return facts


def _runs(runs: list[dict[str, Any]]) -> str:
    rows = [
        (r["number"], r["pool"], _places(r), r["started_at"], r["ended_at"], r["end_reason"])
        for r in runs
    ]
    return table(("run", "pool", "GPUs", "started", "ended", "why"), rows, right=(0,))


def _places(run: dict[str, Any]) -> str:
    return " ".join(dict.fromkeys(f"{h['node']}×{len(h['gpus'])}" for h in run["holdings"]))


def _budget(row: dict[str, Any]) -> Row:
    figures = row["figures"] or {}
    names = ("granted", "settled", "held", "spendable")
    money = [credits(figures.get(f"{name}_mgpus")) for name in names]
    shares = [percent(row[f"{name}_thousandths"]) for name in ("share", "effective")]
    return ("  " * row["depth"] + row["path"].rpartition("/")[2], *shares, *money)


def _burn_row(row: dict[str, Any]) -> Row:
    name = f"{row['path']} (reserve)" if row["is_reserve"] else row["path"]
    money = [credits(row[f"{n}_mgpus"]) for n in ("granted", "settled", "burned")]
    hours = [
        credits(row[f"{n}_gpu_seconds"] * 1000) for n in ("busy", "parked", "realtime", "unfunded")
    ]
    return (name, *money, *hours)


def _why(job: dict[str, Any]) -> str:
    return job["waits_text"] or ""


def _waits(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Why it waits, in the words of its page, whom for, what would release it, and until when."""
    outlook = job["outlook"]
    if outlook is None:
        return [("waits", job["waits_text"])] if job["waits_text"] else []
    facts = [("waits", outlook["text"]), ("because", outlook["sentence"])]
    if ahead := outlook["data"].get("behind"):
        facts.append(("ahead", _ahead(ahead)))
    if outlook["released_by"]:
        facts.append(("released", outlook["released_by"]))
    likely = outlook["start_likely"]
    span = f"{outlook['start_low']} – {outlook['start_high']}, likely {likely}"
    facts.append(("starts", span if likely else "not in the plan of 24 h yet"))
    if record := outlook.get("track_record"):
        facts.append(("so far", record["text"]))
    return facts


def _ahead(jobs: list[dict[str, Any]]) -> str:
    """Jobs that are before it, as far as one may know them; the first three."""
    named = [
        f"{one['budget'].rpartition('/')[2]}/{one['name']} #{one['job']}"
        if one["job"]
        else "another budget's work"
        for one in jobs[:3]
    ]
    more = len(jobs) - len(named)
    return ", ".join(named) + (f", and {more} more" if more else "")


def _text(cell: object) -> str:
    """A cell on one line: what others named can't draw on the terminal."""
    if cell is None:
        return "–"
    return "".join(c if c.isprintable() else "�" for c in str(cell))
