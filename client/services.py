"""Commands about real-time services: their traffic, and how they follow it."""

import argparse
import csv
import math
from typing import Any

from client.api import Client, Problem


def send_or_show(client: Client, asked: argparse.Namespace) -> Any:
    if asked.file is None:
        return client.traffic(asked.job)
    try:
        with open(asked.file, newline="", encoding="utf-8-sig") as file:
            rates = [{"at": row["at"], "rate": float(row["rate"])} for row in csv.DictReader(file)]
    except OSError as error:
        raise Problem(f"{asked.file}: {error.strerror or error}.") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise Problem(f"{asked.file} is no CSV file with columns at and rate: {error}.") from error
    return client.send_traffic(asked.job, rates, step_minutes=asked.step_minutes)


def calibrate(client: Client, asked: argparse.Namespace) -> Any:
    changes = {"calibrated": asked.on, "least_gpus": asked.least, "most_gpus": asked.most}
    given = {name: value for name, value in changes.items() if value is not None}
    if asked.rate is not None:
        given["rate_per_gpu"] = None if asked.rate == "measured" else asked.rate
    if given:
        return client.calibrate(asked.job, **given)
    if asked.now:
        client.recalibrate(asked.job)
    return client.calibration(asked.job)


def add_traffic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=int)
    parser.add_argument("file", nargs="?", help="CSV with at and rate; left out: show it")
    parser.add_argument("--step-minutes", type=int, help="of its first traffic; default: 60")


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=int)
    parser.add_argument("--on", action="store_true", default=None, help="follow the traffic")
    parser.add_argument(
        "--off", action="store_false", dest="on", help="follow the declared profile"
    )
    parser.add_argument("--rate", type=_rate, help="what one GPU does a second, or: measured")
    parser.add_argument("--least", type=int, help="forecasts ask for no fewer GPUs")
    parser.add_argument("--most", type=int, help="forecasts ask for no more GPUs")
    parser.add_argument("--now", action="store_true", help="make the next version of its profile")


def _rate(text: str) -> float | str:
    """Return a rate a second, or the word measured."""
    if text == "measured":
        return text
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate) or rate <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate above 0, nor the word measured")
    return rate
