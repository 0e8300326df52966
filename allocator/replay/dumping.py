"""Writes recorded cycles as scenario and plan files, evenly spread over a replay."""

import json
from pathlib import Path

from allocator import cycle
from allocator.models import Cycle


def dump(*, folder: Path, count: int) -> int:
    """Write SCENARIO-k.json and PLAN-k.json, k from 1; returns how many pairs."""
    ids = list(Cycle.objects.order_by("pk").values_list("pk", flat=True))
    chosen = spread(ids, count)
    folder.mkdir(parents=True, exist_ok=True)
    for number, pk in enumerate(chosen, 1):
        row = Cycle.objects.get(pk=pk)
        for name, packed in (("SCENARIO", row.snapshot), ("PLAN", row.plan)):
            text = json.dumps(cycle.unpack(bytes(packed)), separators=(",", ":"))
            (folder / f"{name}-{number}.json").write_text(text + "\n", encoding="utf-8")
    return len(chosen)


def spread(ids: list[int], count: int) -> list[int]:
    """``count`` of the ids (all if there are fewer), the first and the last among them."""
    if count >= len(ids):
        return ids
    if count == 1:
        return ids[-1:]
    return [ids[k * (len(ids) - 1) // (count - 1)] for k in range(count)]
