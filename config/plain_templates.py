"""Templates that write bare numbers the same in every language.

Django writes ``{{ 12.5 }}`` as 12,5 for a Brazilian reader, also where a picture's coordinate, a
field's value or a script reads it. Here it stays 12.5; what people read goes through the filters of
`clusters/templatetags/allotment.py`, which know the reader's language.
"""

from typing import Any

from django.http import HttpRequest
from django.template.backends.django import DjangoTemplates, Template
from django.template.context import make_context
from django.utils.safestring import SafeString


class Plain(Template):
    """A template whose context localises nothing by itself."""

    def render(
        self, context: dict[str, Any] | None = None, request: HttpRequest | None = None
    ) -> SafeString:
        made = make_context(context, request, autoescape=self.backend.engine.autoescape)
        made.use_l10n = False
        return self.template.render(made)


class PlainTemplates(DjangoTemplates):
    """Django's own templates, each of them `Plain`."""

    def from_string(self, template_code: str) -> Template:
        return Plain(super().from_string(template_code).template, self)

    def get_template(self, template_name: str) -> Template:
        return Plain(super().get_template(template_name).template, self)
