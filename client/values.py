"""What stands on the command line, read: amounts, lengths of time, instants, JSON; and counts."""

import argparse
import json
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

DIGITS = 12  # of the largest amount; more is no amount but a slip
LENGTH = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m(?:in)?)?")


def instant(text: str) -> str:
    """Return an instant as the server reads it; one such as +14d or +1h30m counts from now."""
    if not text.startswith("+"):
        return text
    length = _length(text[1:])
    if not length:
        raise argparse.ArgumentTypeError(f"{text!r} is no time from now such as +14d or +1h30m")
    return (datetime.now(UTC) + length).strftime("%Y-%m-%dT%H:%M:%SZ")


def _length(text: str) -> timedelta:
    """Return 14d, 1h30m or 30min; nothing at all where it is none of them."""
    found = LENGTH.fullmatch(text.replace(" ", "").lower())
    days, hours, minutes = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    return timedelta(days=days, hours=hours, minutes=minutes)


def amount(text: str) -> Decimal:
    """Return an amount exactly, so that no part of a credit is lost."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount <= 0 or abs(amount.adjusted()) > DIGITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount above 0")
    return amount


def integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def json_object(text: str) -> dict[str, Any]:
    """Return a JSON object, given as it is or as @FILE."""
    try:
        found = json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} can't be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return found


def more(text: str) -> int:
    """Return 30m, 1h or 1h30m as seconds."""
    seconds = int(_length(text).total_seconds())
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time such as 30m or 1h30m")
    return seconds


def seconds(text: str) -> int:
    """Return hours as whole seconds."""
    hours = float(text)
    if not math.isfinite(hours) or hours < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours")
    return round(hours * 3600)


def count(number: int, noun: str) -> str:
    """Return a number of things: 1 GPU, 2 GPUs."""
    return f"{number} {noun if number == 1 else noun + 's'}"
