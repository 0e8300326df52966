"""The calls. Each answers what the API answered, as plain dictionaries and lists."""

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

TIMEOUT_S = 30
RATES_AT_ONCE = 10_000
Json = dict[str, Any]


class Problem(Exception):
    """The server refused, or can't be reached; the text says what to change.

    `status` is the HTTP status (0: no answer), `body` the problem object.
    """

    def __init__(self, sentence: str, *, status: int = 0, body: Json | None = None) -> None:
        self.status = status
        self.body = body or {}
        super().__init__(sentence)


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the token elsewhere, and turn a POST into a GET."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Client:
    """One server, as one person. `token` is what `token_for` answers or the admin pages show."""

    def __init__(self, url: str, *, token: str, timeout_s: float = TIMEOUT_S) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise Problem(f"{url!r} is no address of a server: use one such as http://host:8000.")
        if token and not (token.isascii() and token.isalnum()):
            raise Problem("The token has characters that no token has: copy it again.")
        self._base = f"{url.rstrip('/')}/api/v1/"
        self._token = token
        self._timeout_s = timeout_s

    def submit(self, *, idempotency_key: str | None = None, **job: Any) -> Json:
        """Submit a job: budget, name, kind, gpus, and what `docs/api.md` lists.

        With an idempotency key the same request may be sent again: it answers the same job.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send("POST", "jobs/", body=job, headers=headers)

    def estimate(self, **job: Any) -> Json:
        """Ask what a job would take, cost and wait, and on which GPUs it fits; nothing is written.

        As for `submit`; `gpus` may be left out where `work` says what it computes. `deadline`:
        ISO 8601 with a zone.
        """
        return self._send("POST", "estimates/", body=job)

    def show(self, job: int) -> Json:
        """Return one job with runs, charges, why it waits, and its story."""
        return self._send("GET", f"jobs/{job}/")

    def jobs(
        self, *, budget: str = "", states: Sequence[str] = (), mine: bool = False
    ) -> Iterator[Json]:
        """Yield jobs, the newest first, page by page as they are asked for."""
        query: dict[str, Any] = {"state": list(states)} if states else {}
        if budget:
            query["budget"] = budget
        if mine:
            query["mine"] = "true"
        return self._pages("jobs/", query)

    def cancel(self, job: int) -> Json:
        """Cancel a job: at once while it waits, at the next cycle while it runs."""
        return self._send("POST", f"jobs/{job}/cancel/")

    def extend(self, job: int, *, more_s: int, idempotency_key: str | None = None) -> Json:
        """Extend a session at once; refused, the Problem says why and until when it may be.

        With an idempotency key the same request may be sent again: it extends once.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send("POST", f"jobs/{job}/extend/", body={"more_s": more_s}, headers=headers)

    def set_urgency(self, job: int, urgency: str) -> Json:
        """Make a job low, normal or high: it sorts inside its own budget only."""
        return self._send("POST", f"jobs/{job}/urgency/", body={"urgency": urgency})

    def traffic(self, job: int, *, start: str = "", end: str = "") -> Json:
        """Return what came to a service in [start, end), the last 7 days if left out."""
        query = {"from": start, "to": end}
        given = {name: value for name, value in query.items() if value}
        return self._send("GET", f"jobs/{job}/traffic/", query=given)

    def send_traffic(
        self, job: int, rates: Sequence[Mapping[str, Any]], *, step_minutes: int | None = None
    ) -> Json:
        """Send rates, {"at": instant, "rate": a second}, in lists as long as the server takes.

        The same rates again change nothing, so that it may be repeated after a failure.
        """
        total: Json = {}
        for first in range(0, max(1, len(rates)), RATES_AT_ONCE):
            body: Json = {"traffic": [dict(rate) for rate in rates[first : first + RATES_AT_ONCE]]}
            if step_minutes is not None:
                body["step_minutes"] = step_minutes
            for name, count in self._send("POST", f"jobs/{job}/traffic/", body=body).items():
                total[name] = total.get(name, 0) + count
        return total

    def calibration(self, job: int) -> Json:
        """Return how a service follows its traffic, and its demand of the next 24 h."""
        return self._send("GET", f"jobs/{job}/calibration/")

    def calibrate(self, job: int, **changes: Any) -> Json:
        """Change how a service follows its traffic: calibrated, rate_per_gpu (None: as measured),
        least_gpus, most_gpus. What is left out stays."""
        return self._send("POST", f"jobs/{job}/calibration/", body=changes)

    def recalibrate(self, job: int) -> Json:
        """Make the next version of a service's profile now, and return it."""
        return self._send("POST", f"jobs/{job}/recalibrate/")

    def tree(self) -> Json:
        """Return the budgets one may see, depth first, with shares and figures."""
        return self._send("GET", "budgets/")

    def budget(self, path: str) -> Json:
        """Return one budget, and what one may do there."""
        return self._send("GET", f"budgets/{quote(path)}/")

    def burn(self, path: str, *, start: str = "", end: str = "", by: str = "child") -> Json:
        """Return what a budget burnt in [start, end), ISO 8601 with a zone."""
        query = {"from": start, "to": end, "by": by}
        given = {name: value for name, value in query.items() if value}
        return self._send("GET", f"budgets/{quote(path)}/burn/", query=given)

    def change_sets(self, path: str) -> Iterator[Json]:
        """Yield the changes of the shares of a budget's children, the newest first."""
        return self._pages(f"budgets/{quote(path)}/change-sets/", {})

    def propose_shares(
        self,
        path: str,
        *,
        shares: Mapping[str, int],
        reason: str,
        base_version: int,
        overrides: Mapping[str, Mapping[str, int]] | None = None,
        effective_at: str = "",
    ) -> Json:
        """Propose shares of all children of a budget, in thousandths of a percent by slug."""
        body: Json = {"shares": shares, "reason": reason, "base_version": base_version}
        if overrides:
            body["overrides"] = overrides
        if effective_at:
            body["effective_at"] = effective_at
        return self._send("POST", f"budgets/{quote(path)}/change-sets/", body=body)

    def approve_shares(self, change_set: int) -> Json:
        """Put a proposal in force."""
        return self._send("POST", f"change-sets/{change_set}/approve/")

    def requests(self, *, budget: str = "", status: str = "") -> Iterator[Json]:
        """Yield requests for more, the newest first: for one budget, or for all one may see."""
        address = f"budgets/{quote(budget)}/requests/" if budget else "requests/"
        return self._pages(address, {"status": status} if status else {})

    def request(self, request: int) -> Json:
        """Return one request, and what one may decide on it."""
        return self._send("GET", f"requests/{request}/")

    def ask(self, path: str, *, reason: str, until: str | None = None, **amount: int) -> Json:
        """Ask for more for a budget: `amount_mgpus`, or `thousandths` of a percent."""
        body: Json = {"reason": reason, "until": until, **amount}
        return self._send("POST", f"budgets/{quote(path)}/requests/", body=body)

    def grant(
        self, request: int, *, source: str, reason: str = "", given: int | None = None
    ) -> Json:
        """Grant a request out of an ancestor's reserve or a sibling; in part: `given`."""
        body: Json = {"source": source, "reason": reason}
        if given is not None:
            body["given"] = given
        return self._send("POST", f"requests/{request}/grant/", body=body)

    def decline(self, request: int, *, reason: str) -> Json:
        """Decline a request."""
        return self._send("POST", f"requests/{request}/decline/", body={"reason": reason})

    def withdraw(self, request: int) -> Json:
        """Take a request back."""
        return self._send("POST", f"requests/{request}/withdraw/")

    def transfer(
        self, path: str, *, to: str, amount_mgpus: int, reason: str, key: str | None = None
    ) -> list[Json]:
        """Move credits to another budget; sent again with the same key, it is the same transfer."""
        body: Json = {"to": to, "amount_mgpus": amount_mgpus, "reason": reason}
        if key:
            body["idempotency_key"] = key
        return list(self._send("POST", f"budgets/{quote(path)}/transfers/", body=body))

    def notices(self, *, unread: bool = False) -> Iterator[Json]:
        """Yield what one was told, the newest first."""
        return self._pages("notices/", {"unread": "true"} if unread else {})

    def plan(self) -> Json:
        """Return the current plan as bars on the grid of GPUs."""
        return self._send("GET", "plan/")

    def nodes(self) -> list[Json]:
        """Return every node in use, with its state."""
        return list(self._send("GET", "nodes/"))

    def windows(self, *, states: Sequence[str] = ()) -> Iterator[Json]:
        """Yield windows of maintenance, the one that begins last first."""
        return self._pages("windows/", {"state": list(states)} if states else {})

    def window(self, window: int) -> Json:
        """Return one window, and when each of its nodes is free."""
        return self._send("GET", f"windows/{window}/")

    def drain(
        self,
        nodes: Sequence[str],
        *,
        reason: str,
        start: str | None = None,
        end: str | None = None,
        preview: bool = False,
    ) -> Json:
        """Set a window on nodes, h100-n[01-08] for many; now on, and until it is ended, unless
        `start` and `end` say otherwise. `preview`: only say what it would do."""
        body: Json = {"nodes": list(nodes), "reason": reason, "starts_at": start, "ends_at": end}
        return self._send("POST", "windows/preview/" if preview else "windows/", body=body)

    def undrain(self, window: int) -> Json:
        """End a window that has begun; call one off that hasn't."""
        deed = "call-off" if self.window(window)["state"] == "planned" else "end"
        return self._send("POST", f"windows/{window}/{deed}/", body={})

    def me(self) -> Json:
        """Return who the token belongs to."""
        return self._send("GET", "me/")

    def _pages(self, address: str, query: Mapping[str, Any]) -> Iterator[Json]:
        number = 1
        while True:
            page = self._send("GET", address, query={**query, "page": number})
            yield from page["results"]
            if page["next"] is None:
                return
            number += 1

    def _send(
        self,
        method: str,
        address: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        url = self._base + address + (f"?{urlencode(query, doseq=True)}" if query else "")
        authorization = {"Authorization": f"Token {self._token}"} if self._token else {}
        return _answer(method, url, body, {**authorization, **(headers or {})}, self._timeout_s)


def token_for(url: str, *, username: str, password: str, timeout_s: float = TIMEOUT_S) -> str:
    """Return the token of a person, for their password."""
    asked = {"username": username, "password": password}
    stranger = Client(url, token="", timeout_s=timeout_s)
    try:
        return str(stranger._send("POST", "token/", body=asked)["token"])
    except Problem as problem:
        if problem.status != HTTPStatus.BAD_REQUEST:
            raise
        raise Problem(
            f"{problem} Check the user name and the password.", status=problem.status
        ) from None


def _answer(
    method: str, url: str, body: Json | None, headers: Mapping[str, str], timeout_s: float
) -> Any:
    data = json.dumps(body).encode() if method == "POST" else None
    sent = {"Accept": "application/json", "Content-Type": "application/json", **headers}
    try:
        request = Request(url, data=data, method=method, headers=sent)
        with build_opener(_NoRedirect).open(request, timeout=timeout_s) as response:
            return json.loads(response.read())
    except HTTPError as error:
        raise _refused(error) from error
    except (URLError, OSError) as error:
        why = getattr(error, "reason", error)
        place = urlsplit(url).netloc
        hint = "Does it run there? ALLOTMENT_URL, or --url, says where to ask."
        raise Problem(f"No answer from {place}: {why}. {hint}") from error
    except ValueError as error:
        raise Problem(f"{urlsplit(url).netloc} answers, but not as Allotment does.") from error


def _refused(error: HTTPError) -> Problem:
    try:
        body = json.loads(error.read())
        sentence = body["detail"]
    except (ValueError, KeyError, TypeError):
        phrase = HTTPStatus(error.code).phrase
        return Problem(f"The server answered {error.code} ({phrase}).", status=error.code)
    if error.code == HTTPStatus.UNAUTHORIZED:
        sentence += " Set ALLOTMENT_TOKEN to what `python3 -m client token YOU` prints."
    return Problem(sentence, status=error.code, body=body)
