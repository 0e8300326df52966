"""The processes of the load test: a web server, somebody who submits, somebody who ticks.

All live on one clock that starts at T0 and runs `SPEED` times as fast as the wall's, so that
timesteps end while they work. Run by tests/test_load.py:

    gunicorn tests.loading:application
    python -m tests.loading submit TOKEN PORT NUMBER PER_SECOND SECONDS
    python -m tests.loading tick STOP_FILE
"""

import http.client
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SPEED = 120
T0 = datetime(2026, 10, 1, tzinfo=UTC)
PATHS = ("orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern")


def now() -> datetime:
    """Whole seconds since `LOAD_BEGAN` (of the wall clock), `SPEED` times as fast, from T0 on."""
    return T0 + timedelta(seconds=int((time.time() - float(os.environ["LOAD_BEGAN"])) * SPEED))


def application(environ: Any, start_response: Any) -> Any:
    """The product's own application, with this clock."""
    from config import clock, wsgi

    clock.now = now
    return wsgi.application(environ, start_response)


# --- Submitting ----------------------------------------------------------------------------------


class Client:
    """One connection to the server; remembers how long each request took and what it answered."""

    def __init__(self, token: str, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
        self.took: list[float] = []
        self.answers: list[tuple[int, Any]] = []

    def _sent(self, path: str, body: Any) -> http.client.HTTPResponse:
        self.connection.request("POST", f"/api/v1{path}", json.dumps(body), self.headers)
        return self.connection.getresponse()

    def post(self, path: str, body: Any) -> Any:
        began = time.monotonic()
        try:
            answer = self._sent(path, body)
        except ConnectionError:  # kept open for too long without a word: once more, as it is
            self.connection.close()
            answer = self._sent(path, body)
        said = answer.read().decode(errors="replace")
        self.took.append(time.monotonic() - began)
        json_said = "json" in answer.headers.get("Content-Type", "")
        self.answers.append((answer.status, json.loads(said) if json_said else said[:500]))
        return self.answers[-1][1]


def asked(number: int, n: int, dice: random.Random) -> dict[str, Any]:
    """The n-th job of a worker; the same for the same dice."""
    lasts = dice.choice([300, 600, 1200, 2400])
    return {
        "budget": dice.choice(PATHS),
        "name": f"load-{number}-{n}",
        "kind": "training",
        "gpus": dice.choice([1, 1, 2, 4, 8]),
        "minimum_runtime_s": dice.choice([0, 300, 600]),
        "resumable": dice.random() < 0.5,
        "expected_duration_s": lasts,
        "idempotency_key": f"{number}-{n}",
        "spec": {"simulate": {"duration_s": lasts}},
    }


def submit(token: str, port: int, number: int, per_second: float, seconds: float) -> dict[str, Any]:
    """Submit jobs at a rate, some of them twice (at once or again later), and cancel a few."""
    dice = random.Random(number)
    clients = [Client(token, port) for _ in range(2)]
    began, ids = time.monotonic(), {}
    with ThreadPoolExecutor(1) as twin:
        for n in range(int(per_second * seconds)):
            time.sleep(max(0.0, began + n / per_second - time.monotonic()))
            body, luck = asked(number, n, dice), dice.random()
            beside = twin.submit(clients[1].post, "/jobs/", body) if luck < 0.1 else None
            answers = [clients[0].post("/jobs/", body)]
            if 0.1 <= luck < 0.2:
                answers.append(clients[0].post("/jobs/", body))
            if beside is not None:
                answers.append(beside.result())
            ids[body["idempotency_key"]] = sorted({a["id"] for a in answers if "id" in a})
            if luck > 0.9 and "id" in answers[0]:
                clients[0].post(f"/jobs/{answers[0]['id']}/cancel/", {})
    return {
        "seconds": time.monotonic() - began,
        "ids": ids,
        "took": [seconds for client in clients for seconds in client.took],
        "bad": [a for client in clients for a in client.answers if a[0] not in (200, 201)],
    }


# --- Ticking -------------------------------------------------------------------------------------


def tick(stop: Path) -> dict[str, Any]:
    """Run one cycle after another until the file is there; "none" where another process does."""
    import django

    django.setup()
    from allocator import cycle

    took, statuses = [], []
    while not stop.exists():
        began = time.monotonic()
        made = cycle.run(at=now(), trigger="load")
        if made is not None:
            took.append(time.monotonic() - began)
        statuses.append("none" if made is None else str(made.status))
        time.sleep(0.5)
    return {"cycles": took, "statuses": sorted(set(statuses))}


if __name__ == "__main__":
    if sys.argv[1] == "tick":
        print(json.dumps(tick(Path(sys.argv[2]))))
    else:
        token, port, number, per_second, seconds = sys.argv[2:]
        print(json.dumps(submit(token, int(port), int(number), float(per_second), float(seconds))))
