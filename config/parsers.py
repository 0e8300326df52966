"""How bodies of API requests are read."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser

from clusters.saying import number
from clusters.saying import say as _

LARGEST_BODY = 1_000_000  # bytes


class TooLarge(APIException):
    status_code = 413
    default_code = "too_large"
    default_detail = _(
        "Send at most %(largest_body)s bytes of JSON.", largest_body=number(LARGEST_BODY)
    )


class BoundedJSONParser(JSONParser):
    """JSON of a bounded size; what nests too deep to be read is refused like any bad JSON."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        request = (parser_context or {}).get("request")
        if request is not None and int(request.META.get("CONTENT_LENGTH") or 0) > LARGEST_BODY:
            raise TooLarge
        try:
            found = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError(_("The JSON is nested too deep: keep it under 100 levels.")) from None
        except ParseError as error:
            raise ParseError(
                _("The body can't be read as JSON (%(error)s): mend it.", error=error)
            ) from error
        if not isinstance(found, dict):
            raise ParseError(_("Send one JSON object, in braces."))
        return found
