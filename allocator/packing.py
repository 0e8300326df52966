"""How snapshots and plans are stored: JSON in the scenario and plan file formats, compressed."""

import json
import zlib
from typing import Any


def pack(data: object) -> bytes:
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 6)


def unpack(packed: bytes) -> dict[str, Any]:
    """The JSON of a stored snapshot or plan, in the scenario or plan file format."""
    found: dict[str, Any] = json.loads(zlib.decompress(packed))
    return found
