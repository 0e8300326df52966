"""When a quoted job would start, in a sentence."""

from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from allocator.pages.submit import Quote
from clusters.writing import dated


def start(quote: Quote) -> str:
    """When it would start, as far as the newest plan can tell; nothing of a service."""
    if quote.verdict == "service":
        return ""
    if quote.waits_for_funds:
        return _("It would wait for funds first.")
    gap = quote.gap
    if gap is None:
        return _("Nothing is planned yet that could tell when it starts.")
    words = {"gpus": f"{quote.gpus:,}", "until": _at(gap.until), "at": _at(gap.planned_at)}
    if gap.low is None:
        return _("No block of %(gpus)s GPUs is free before the plan ends, at %(until)s.") % words
    words["low"] = _at(gap.low)
    late = gap.high or gap.likely
    if late is None:
        text = _("A block of %(gpus)s GPUs is free from %(low)s, not for as long as it may take.")
    elif late == gap.low:
        text = _("A block of %(gpus)s GPUs is free from %(low)s, for as long as it may take.")
    else:
        words["late"] = _at(late)
        text = _("A block of %(gpus)s GPUs is free from %(low)s, from %(late)s for long enough.")
    more = _("That is by the plan of %(at)s: jobs that are more entitled come first.")
    return f"{text % words} {more % words}"


def _at(at: datetime) -> str:
    local = timezone.localtime(at)
    return f"{dated(local, 'D j M H:i')} {local:%Z}"
