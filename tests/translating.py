"""Reading translations and what is to be translated, without gettext's programs."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
PO = ROOT / "locale/pt_BR/LC_MESSAGES/django.po"
APPS = ("allocator", "budgets", "clusters", "config", "forecasting", "ledger", "workloads")
# How many texts each takes, and whether a context stands before them.
CALLS = {"gettext": 1, "ngettext": 2, "pgettext": 2, "npgettext": 3}
MODULES = ("django.utils.translation", "clusters.saying")
MEANS = {
    **{f"{name}{how}": name for name in CALLS for how in ("", "_lazy", "_noop")},
    "say": "gettext",
}
STRING = r"u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
IN_TEMPLATE = re.compile(
    rf"\b(_|gettext|ngettext|pgettext|npgettext)\(\s*{STRING}(?:\s*,\s*{STRING})?(?:\s*,\s*{STRING})?"
)

# (context, text, plural); "" for none.
Text = tuple[str, str, str]


@dataclass
class Entry:
    """One entry of a .po file."""

    fields: dict[str, str] = field(default_factory=dict)
    flags: str = ""

    @property
    def text(self) -> Text:
        names = ("msgctxt", "msgid", "msgid_plural")
        return tuple(self.fields.get(name, "") for name in names)  # type: ignore[return-value]

    @property
    def forms(self) -> list[str]:
        return [value for name, value in self.fields.items() if name.startswith("msgstr")]


def entries(path: Path = PO) -> list[Entry]:
    """Return the entries of a .po file, its header first; those that are obsolete are left out."""
    found = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        entry, name = Entry(), ""
        for line in block.splitlines():
            if line.startswith("#"):
                entry.flags += line if line.startswith("#,") else ""
                continue
            head = re.match(r"(msg[a-z_]+(?:\[\d\])?) ", line)
            if head:
                name, line = head[1], line[head.end() :]
                entry.fields[name] = ""
            entry.fields[name] += ast.literal_eval(line)
        if entry.fields:
            found.append(entry)
    return found


def _made(name: str, texts: list[str]) -> Text:
    base = name.removesuffix("_lazy")
    context = texts.pop(0) if base in ("pgettext", "npgettext") else ""
    return context, texts[0], texts[1] if len(texts) > 1 else ""


def in_template(source: str) -> Iterator[Text]:
    """Yield what a template has translated."""
    for name, *quoted in IN_TEMPLATE.findall(templatize(source)):
        base = "gettext" if name == "_" else name
        texts = [ast.literal_eval(one) for one in quoted[: CALLS[base]] if one]
        yield _made(base, texts)


def in_python(source: str) -> Iterator[Text]:
    """Yield what a module has translated: calls of gettext's functions, under any name."""
    tree = ast.parse(source)
    names = {
        one.asname or one.name: MEANS[one.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in MODULES
        for one in node.names
        if one.name in MEANS
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            base = names[node.func.id]
            given = node.args[: CALLS[base]]
            texts = [one.value for one in given if isinstance(one, ast.Constant)]
            if len(texts) == CALLS[base]:
                yield _made(base, [str(one) for one in texts])


def used() -> set[Text]:
    """Return every text that the templates and the modules have translated."""
    found: set[Text] = set()
    for path in (ROOT / "templates").rglob("*.html"):
        found.update(in_template(path.read_text(encoding="utf-8")))
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "gettext" in text or "clusters.saying" in text:
                found.update(in_python(text))
    return found
