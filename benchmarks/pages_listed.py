"""Every page, file and list of the API that is only read, as the bench of pages asks for it.

`{…}` are of the world that `pages_people` makes. A route that stands in none of these tables makes
the bench fail: whoever adds a page adds it here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

PAGE, FILE, API, PART = "page", "file", "API", "part"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. ``part``: by htmx, for what a page asks for again while it is open."""

    kind: str
    address: str
    body: dict[str, str] | None = None  # of a request that only shows what would come
    slow: str = ""  # why it has no limit

    @property
    def method(self) -> str:
        return "get" if self.body is None else "post"


def _all(kind: str, *addresses: str) -> Iterable[Asked]:
    return [Asked(kind, address) for address in addresses]


SHARES = {"base_version": "12", "reason": "why", "when": "now"}
QUOTE = {
    "budget": "{path}",
    "kind": "training",
    "gpus": "8",
    "urgency": "normal",
    "when_unfunded": "wait",
    "name": "sft",
}
PLAYS = "it plans again: as long as the cycle took, and more"
PAGES = (
    *_all(PAGE, "", "?span=24h", "?span=28d", "search?q=sft", "search?q=b1"),
    *_all(PAGE, "budgets", "budgets/{root}", "budgets/{parent}", "budgets/{path}"),
    *_all(PAGE, "budgets/{root}/shares", "budgets/{parent}/shares"),
    *_all(PAGE, "budgets/{parent}/shares?set={change_set}"),
    *_all(PAGE, "budgets/{root}/report", "budgets/{path}/report"),
    *_all(PAGE, "budgets/{root}/asked", "budgets/{path}/asked", "budgets/{path}/requests"),
    *_all(PAGE, "budgets/{parent}/transfers", "budgets/{path}/rename", "budgets/{path}/move"),
    *_all(PAGE, "budgets/{root}/diff", "budgets/{parent}/diff", "budgets/{path}/diff"),
    *_all(PAGE, "budgets/{path}/by-hand", "budgets/{root}/plan", "budgets/{path}/plan"),
    *_all(PAGE, "periods", "periods/{period}", "periods/{drafted}"),
    *_all(PAGE, "periods/{drafted}/checkpoints", "periods/{period}/checkpoints"),
    *_all(PAGE, "requests", "requests?status=all", "requests/{request}"),
    *_all(PAGE, "notices", "notices?page=20"),
    *_all(PAGE, "jobs", "jobs?state=all", "jobs?state=ended", "jobs?state=all&page=1000"),
    *_all(
        PAGE, "jobs?state=all&sort=job", "jobs?state=all&sort=-gpus", "jobs?state=all&sort=since"
    ),
    *_all(PAGE, "jobs?state=all&sort=-start", "jobs?state=all&q=sft", "jobs?state=all&q=nothing"),
    *_all(PAGE, "jobs?state=all&sort=submitted", "jobs?state=all&budget={parent}"),
    *_all(PAGE, "jobs?state=waiting&reason=behind&sort=-start", "jobs?state=all&kind=realtime"),
    *_all(PAGE, "jobs?state=all&mine=1", "jobs/new"),
    *_all(PAGE, "jobs/{ended}", "jobs/{waiting}", "jobs/{running}", "jobs/{service}"),
    *_all(PAGE, "forecasts", "forecasts?days=90", "plan", "plan?view=table"),
    *_all(PAGE, "cycles", "cycles?status=failed", "cycles/{cycle}", "nodes"),
    *_all(PAGE, "settings/people", "settings/people?q=person1", "settings/people/{person}"),
    *_all(PAGE, "settings/people/give", "settings/pools/new", "settings/pools/{pool}"),
    *_all(PAGE, "settings/pools/{pool}/nodes", "settings/nodes/{node}"),
    *_all(PAGE, "settings/pools", "audit", "audit?kind=jobs", "audit?q=sft", "audit?who=bench"),
    *_all(PAGE, "windows/new", "windows/{window}"),
    *_all(PAGE, "reviews", "reviews/{period}/{root}", "reviews/{period}/{parent}"),
    *_all(PAGE, "reviews/{period}/{path}"),
    *_all(PAGE, "simulator", "simulator/{simulation}", "simulator/{simulation}/runs"),
    *_all(PAGE, "sign-in", "password", "healthz", "favicon.ico", "docs", "docs/ledger"),
    *_all(PART, "", "budgets", "budgets/{root}", "budgets/{path}", "jobs", "jobs/{running}"),
    *_all(PART, "jobs?state=all&q=sft", "jobs/{service}", "plan", "cycles", "nodes"),
    *_all(PART, "windows/{window}", "simulator/{simulation}", "simulator/{simulation}/preview"),
    *_all(PART, "search?q=sft"),
    *_all(PART, "budgets/{root}/burn.json", "budgets/{path}/burn.json", "plan.json"),
    *_all(PART, "budgets/{parent}/levels.json", "budgets/{path}/levels.json"),
    *_all(PART, "jobs/{service}/demand.json", "simulator/{simulation}/picture.json"),
    Asked(PART, "budgets/{parent}/shares/preview", SHARES),
    Asked(PART, "budgets/{path}/move/preview", {}),
    Asked(PART, "budgets/{path}/by-hand/preview", {"kind": "grant", "amount": "1"}),
    Asked(PART, "budgets/{parent}/transfers/preview", {}),
    Asked(PART, "windows/new/preview", {"nodes": "n1", "reason": "firmware"}),
    Asked(PART, "settings/pools/{pool}/nodes/preview", {"nodes": "new[1-4]", "gpus": "8"}),
    Asked(PART, "settings/nodes/{node}/preview", {}),
    Asked(PART, "jobs/quote", QUOTE),
)
FILES = (
    *_all(FILE, "budgets/{root}/burn.csv", "budgets/{root}/burn.xlsx"),
    *_all(FILE, "budgets/{root}/burn.report.json", "budgets/{path}/burn.focus-1.2.csv"),
    *_all(FILE, "jobs/{service}/charges.csv", "jobs/{service}/traffic.csv", "audit.csv"),
    *_all(FILE, "cycles/{cycle}/snapshot.json", "cycles/{cycle}/plan.json"),
    *_all(FILE, "reviews/{period}/{root}.csv", "reviews/{period}/{root}.xlsx"),
    *_all(FILE, "reviews/{period}/{root}.pdf", "simulator/history.csv"),
    *_all(FILE, "docs/files/images/bench-families.svg"),
)
V1 = "api/v1/"
LISTS = (
    *_all(
        API, f"{V1}me/", f"{V1}nodes/", f"{V1}pools/", f"{V1}windows/", f"{V1}windows/{{window}}/"
    ),
    *_all(API, f"{V1}budgets/", f"{V1}budgets/{{root}}/", f"{V1}budgets/{{path}}/"),
    *_all(API, *(f"{V1}budgets/{{root}}/{one}/" for one in ("roles", "burn", "asked", "diff"))),
    *_all(API, *(f"{V1}budgets/{{parent}}/{one}/" for one in ("change-sets", "requests"))),
    *_all(API, *(f"{V1}budgets/{{path}}/{one}/" for one in ("transfers", "by-hand", "plan"))),
    *_all(API, f"{V1}budgets/{{path}}/exemptions/"),
    *_all(API, f"{V1}requests/", f"{V1}requests/{{request}}/", f"{V1}notices/", f"{V1}periods/"),
    *_all(API, f"{V1}periods/{{period}}/", f"{V1}periods/{{drafted}}/plan/"),
    *_all(API, f"{V1}periods/{{period}}/checkpoints/"),
    *_all(API, f"{V1}jobs/", f"{V1}jobs/?page=1000", f"{V1}jobs/?state=queued"),
    *_all(API, f"{V1}jobs/{{service}}/", f"{V1}jobs/{{ended}}/", f"{V1}jobs/{{service}}/traffic/"),
    *_all(API, f"{V1}jobs/{{service}}/calibration/", f"{V1}forecasts/track-record/"),
    *_all(API, f"{V1}plan/", f"{V1}cycles/", f"{V1}cycles/{{cycle}}/", f"{V1}reviews/"),
    *_all(API, f"{V1}reviews/{{period}}/{{root}}/", f"{V1}audit/"),
    *_all(API, f"{V1}simulations/", f"{V1}simulations/{{simulation}}/", f"{V1}docs"),
    *_all(API, f"{V1}schema", f"{V1}"),
    *_all(FILE, f"{V1}budgets/{{root}}/burn/csv/", f"{V1}jobs/{{service}}/traffic.csv/"),
    *_all(FILE, f"{V1}cycles/{{cycle}}/snapshot/", f"{V1}cycles/{{cycle}}/plan/"),
    *_all(FILE, f"{V1}reviews/files/xlsx/{{period}}/{{root}}/"),
)
EVERYTHING = (*PAGES, *FILES, *LISTS)
# What writes, and what there is only of a closed period. By the names of `config/urls.py`.
WRITES = frozenset(
    (
        *("sign-out", "language", "shares-simulate", "exemption-ask", "exemption", "change-set"),
        *("checkpoint-remove", "request-withdraw", "notices-read", "notice-read"),
        *("period-statement", "period-decide", "job-cancel", "job-extend", "job-urgency"),
        *("job-traffic", "job-calibration", "job-recalibrate", "cycle-replay", "window-change"),
        *("window-end", "review-hold", "comment-edit", "comment-withdraw", "review-comment"),
        "simulation-cancel",
    )
)
# Of the API, by the ends of addresses.
API_WRITES = (
    *(
        "label/",
        "retire/",
        "keep/",
        "rate/",
        "token/",
        "preview/",
        "change/",
        "end/",
        "call-off/",
        "archive/",
        "reactivate/",
        "move/",
    ),
    *("rename/", "grant/", "decline/", "withdraw/", "read/", "redraft/", "propose/", "approve/"),
    *("statement/", "statement.csv/", "dry-run/", "cancel/", "extend/", "urgency/", "recalibrate/"),
    *(
        "estimates/",
        "replay/",
        "edit/",
        "comment/<int:pk>/<path:path>/",
        "hold/<int:pk>/<path:path>/",
    ),
    *("checkpoints/<int:pk>/", "roles/<str:username>/", "^.*/$"),
)


def numbered(text: str, numbers: dict[str, Any]) -> str:
    return text.format(**numbers)


def missing() -> list[str]:
    """Return the routes that no table names."""
    from django.urls import get_resolver

    from config import urls

    samples = dict.fromkeys(("path", "parent", "root"), "orlo") | _ones()
    resolve = get_resolver().resolve
    asked = [numbered(one.address, samples).partition("?")[0] for one in EVERYTHING]
    seen = {resolve(f"/{address}").route for address in asked}
    routes = (*urls.pages, *urls.operations)
    own = [str(one.pattern) for one in routes if getattr(one, "name", "") not in WRITES]
    lists = [str(one.pattern) for one in urls.api if not str(one.pattern).endswith(API_WRITES)]
    wanted = [*own, *(f"{V1}{one}" for one in lists)]
    return [one for one in wanted if one not in seen and not one.startswith("admin/")]


def _ones() -> dict[str, Any]:
    names = ("change_set", "period", "drafted", "request", "ended", "waiting", "running", "service")
    return dict.fromkeys((*names, "cycle", "person", "window", "simulation", "node", "pool"), 1)
