"""The Portuguese words: complete, in step with the pages, the same numbers and tags in them."""

import ast
import gettext
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.utils import translation

from clusters.words import offered, worded
from tests import translating
from tests.translating import PO, Entry
from workloads.models import Job

pytestmark = pytest.mark.once

PLACES = re.compile(r"%\((\w+)\)s|(%[a-z]{3,}\b)")
MARKUP = re.compile(r"</?\w+[^>]*>|&\w+;")
ENTRIES = translating.entries()[1:]


def places(text: str) -> set[str]:
    return {one or other for one, other in PLACES.findall(text)}


def wrong(entry: Entry) -> list[str]:
    """Return what a translation has otherwise than its text."""
    _, text, plural = entry.text
    last = entry.forms[-1]
    found = []
    if places(last) != places(plural or text):
        found.append("placeholders")
    if plural and not places(text) <= places(entry.forms[0]) <= places(text) | places(plural):
        found.append("placeholders of one")
    for form, source in zip(entry.forms, [text, plural], strict=False):
        if sorted(MARKUP.findall(form)) != sorted(MARKUP.findall(source)):
            found.append("markup")
        if [form[at].isspace() for at in (0, -1)] != [source[at].isspace() for at in (0, -1)]:
            found.append("space at an end")
        if form.count("%%") != source.count("%%"):
            found.append("percent signs")
    return found


def test_nothing_is_left_open_or_doubtful():
    assert len(ENTRIES) > 2000
    assert [entry.text for entry in ENTRIES if "fuzzy" in entry.flags] == []
    forms = {entry.text: entry.forms for entry in ENTRIES}
    assert [text for text, found in forms.items() if not all(one.strip() for one in found)] == []
    assert [text for text, found in forms.items() if len(found) != 1 + bool(text[2])] == []


def test_a_translation_has_the_placeholders_and_tags_of_its_text():
    assert {entry.text[1]: found for entry in ENTRIES if (found := wrong(entry))} == {}


@pytest.mark.parametrize(
    ("text", "form", "says"),
    [
        ("%(n)s jobs", "%(m)s jobs", ["placeholders"]),
        ("<b>%(n)s</b>", "%(n)s", ["markup"]),
        (" at %(at)s", "às %(at)s", ["space at an end"]),
        ("%(n)s %%", "%(n)s %", ["percent signs"]),
        ("%%row fits", "%%fila cabe", ["placeholders"]),
    ],
)
def test_what_a_wrong_translation_is_told(text, form, says):
    assert wrong(Entry({"msgid": text, "msgstr": form})) == says


def test_the_compiled_file_is_that_of_the_text(tmp_path):
    files = [PO.with_suffix(".mo")]
    if shutil.which("msgfmt"):
        files.append(tmp_path / "django.mo")
        done = ["msgfmt", "--check", "-o", str(files[1]), str(PO)]
        subprocess.run(done, check=True, capture_output=True)
    for path in files:
        assert says(path) == {
            (f"{entry.text[0]}\x04" if entry.text[0] else "") + entry.text[1]: entry.forms
            for entry in ENTRIES
        }, "run manage.py compilemessages -l pt_BR"


def says(path: Path) -> dict[str, list[str]]:
    """Return the texts of a compiled file with their translations."""
    with path.open("rb") as file:
        catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    found: dict[str, list[str]] = {}
    for key, form in sorted(catalog.items(), key=str):
        text = key[0] if isinstance(key, tuple) else key
        if text:
            found.setdefault(text, []).append(form)
    return found


def test_plurals_are_those_of_brazil():
    with PO.with_suffix(".mo").open("rb") as file:
        told = gettext.GNUTranslations(file)
    assert [told.plural(n) for n in (0, 1, 2, 10)] == [0, 0, 1, 1]
    assert told.ngettext("one job", "%(n)s jobs", 1) == "um job"


def test_every_text_on_a_page_is_translated():
    known = {entry.text for entry in ENTRIES}
    missing = sorted(translating.used() - known)
    assert missing == [], "see docs/ui.md, Languages"


def test_every_label_of_the_models_has_its_words():
    labels = {
        str(label)
        for model in apps.get_models()
        if model._meta.app_label in translating.APPS
        for field in model._meta.get_fields()
        for _, label in getattr(field, "choices", None) or ()
    }
    known = {text for context, text, _ in (entry.text for entry in ENTRIES) if context == "state"}
    assert labels - known == set(), "add them to clusters/words.py"
    with translation.override("pt-br"):
        assert worded(Job.State.RUNNING.label) == "Em execução"
        assert dict(offered(Job.Urgency.choices)())["high"] == "Alta"


def test_texts_are_found_wherever_they_stand():
    template = (
        '{% load i18n figures %}{% translate "One" %}{% help _("Two") %}'
        "{% blocktranslate count n=k with a=b|c %}{{ a }} x{% plural %}{{ n }} y"
        "{% endblocktranslate %}"
        '{% translate "May" context "month" %}<i title="{% translate \'Its\' %}"></i>'
    )
    assert set(translating.in_template(template)) == {
        *(("", "One", ""), ("", "Two", ""), ("", "%(a)s x", "%(n)s y"), ("month", "May", "")),
        ("", "Its", ""),
    }
    module = (
        "from django.utils.translation import gettext as _, ngettext, pgettext_lazy as p\n"
        "_('a' 'b'); ngettext('c', 'd', n); p('e', 'f'); _(name)\n"
    )
    assert set(translating.in_python(module)) == {("", "ab", ""), ("", "c", "d"), ("e", "f", "")}


# Errors whose sentences people read on pages and in answers of the API.
REFUSALS = {
    *("Refused", "LedgerError", "WrongList", "WrongNote", "CannotEstimate", "TooLong", "Conflict"),
    *("NotChargedYet", "KeyTaken", "PermissionDenied", "Http404", "NotFound", "AdmissionError"),
    *("ValidationError", "NotRepeatable", "ParseError", "Busy"),
}
# Read by who runs commands, or by programs: those speak English.
ENGLISH = ("management", "replay", "launcher", "demo", "core", "focus_check.py")


def untranslated(source: str) -> Iterator[int]:
    """Yield the lines of refusals with a sentence that no gettext sees."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if name in REFUSALS and any(map(is_sentence, bare(node.exc))):
                yield node.lineno


def bare(node: ast.AST) -> Iterator[str]:
    """Yield the texts below a call that stand in no further call."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            said = (one.value for one in child.values if isinstance(one, ast.Constant))
            yield " ".join(str(one) for one in said)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        elif not isinstance(child, ast.Call):
            yield from bare(child)


def is_sentence(text: str) -> bool:
    return " " in text.strip() and len(re.findall(r"[A-Za-z]{2,}", text)) > 1


def test_every_refusal_is_said_in_the_readers_language():
    found = [
        f"{path.relative_to(translating.ROOT)}:{line}"
        for app in translating.APPS
        for path in sorted((translating.ROOT / app).rglob("*.py"))
        if not set(ENGLISH) & set(path.parts)
        for line in untranslated(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "say it by clusters.saying, see docs/ui.md, Languages"


def test_what_a_refusal_without_translation_is():
    assert list(untranslated('raise Refused("at", f"{x} is over.")')) == [1]
    assert list(untranslated('raise Conflict("Ask again.")')) == [1]
    assert list(untranslated('raise ValidationError({"at": ["Ask again."]})')) == [1]
    assert list(untranslated('raise Refused("at", _("%(x)s is over.", x=f"{a} b c"))')) == []
    assert list(untranslated("raise Conflict(words, state=name)")) == []
