"""How domain code says no: a sentence for people, by field."""

from datetime import datetime

from django.core.exceptions import ValidationError

from clusters.saying import say as _


class Refused(ValidationError):
    """A rule says no; the sentence says what to change. Keyed by field."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__({field: sentence})
        self.field = field
        self.sentence = sentence


def check_instant(at: datetime, field: str) -> None:
    """Refuse an instant without a zone or with a fraction of a second."""
    if at.tzinfo is None or at.utcoffset() is None:
        raise Refused(field, _("The instant has no time zone: end it with Z for UTC."))
    if at.microsecond:
        raise Refused(field, _("The instant has a fraction of a second: give whole seconds."))
