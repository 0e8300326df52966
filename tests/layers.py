"""Reads the imports of a checkout and names those that break the design's import rule.

Apps stand in one line, and imports and foreign keys point only down it. Layers, bottom to
top: core (pure), domain, interface (thin), config. `violations(root)` walks the syntax trees,
so that an import inside a function or under TYPE_CHECKING counts like any other.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LINE = ("clusters", "budgets", "workloads", "ledger", "forecasting", "allocator")
APART = ("config", "client")
INTERFACE = {"api", "views", "admin", "tasks", "management", "forms", "templatetags"}
EXACT_MODEL = "allocator.core.exact"
CORE_LIBRARIES = {"numpy", "numba"}
# What speaks HTTP belongs to interfaces.
INTERFACE_LIBRARIES = {"rest_framework", "drf_spectacular", "django_htmx"}
DATABASE_MODULES = {"sqlite3", "dbm", "shelve"}
CLOCKS = {
    *(("datetime", name) for name in ("now", "utcnow", "today")),
    *(("date", "today"), ("timezone", "now"), ("time", "time"), ("time", "time_ns")),
}
RELATIONS = {"ForeignKey", "OneToOneField", "ManyToManyField"}


@dataclass(frozen=True)
class Module:
    """A first-party module: its dotted name, and the layer it belongs to."""

    name: str

    @property
    def app(self) -> str:
        return self.name.split(".")[0]

    @property
    def layer(self) -> str:
        parts = self.name.split(".")
        if self.app in APART:
            return self.app
        second = parts[1] if len(parts) > 1 else ""
        if second == "core":
            return "core"
        return "interface" if second in INTERFACE else "domain"


def violations(root: Path) -> list[str]:
    """Return one sentence per broken rule, in order of file and line; none is the aim."""
    found: list[str] = []
    for path in sorted(_sources(root)):
        module = Module(_name(root, path))
        where = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), where)
        for line, fault in sorted(set(_faults(root, path, module, tree))):
            found.append(f"{where}:{line}: {fault}")
    return found


def _sources(root: Path) -> Iterator[Path]:
    for package in (*LINE, *APART):
        for path in (root / package).rglob("*.py"):
            if "migrations" not in path.parts:
                yield path


def _name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _faults(root: Path, path: Path, module: Module, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for target in _imported(root, path, module, node):
            fault = _import_fault(module, target)
            if fault:
                yield getattr(node, "lineno", 0), fault
        fault = _clock_fault(module, node) or _relation_fault(module, node)
        if fault:
            yield getattr(node, "lineno", 0), fault


def _imported(root: Path, path: Path, module: Module, node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a statement imports, submodules told from attributes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.name.split(".")
            kept = len(package) - node.level + (path.name == "__init__.py")
            base = ".".join([*package[:kept], *filter(None, [node.module])])
        for alias in node.names:
            inner = root.joinpath(*base.split("."), alias.name)
            is_module = inner.with_suffix(".py").exists() or inner.is_dir()
            yield f"{base}.{alias.name}" if is_module else base


def _import_fault(module: Module, target: str) -> str | None:
    top = target.split(".")[0]
    if top not in LINE and top not in APART:
        return _library_fault(module, target)
    return _layer_fault(module, Module(target))


def _library_fault(module: Module, target: str) -> str | None:
    top = target.split(".")[0]
    if module.layer == "core":
        allowed = CORE_LIBRARIES | ({"ortools"} if module.name.startswith(EXACT_MODEL) else set())
        pure = top in sys.stdlib_module_names and top not in DATABASE_MODULES
        if not pure and top not in allowed:
            return f"core may not import {target}"
    if module.layer == "domain" and top in INTERFACE_LIBRARIES:
        return f"domain may not import {target}: it belongs to interfaces"
    return None


def _layer_fault(module: Module, target: Module) -> str | None:
    same_app = module.app == target.app
    match module.layer, target.layer:
        case "interface", "config":
            return None  # the clock, problem objects and pages of the API
        case _, "client" | "config" if not same_app:
            return f"nothing imports {target.app} but itself ({target.name})"
        case "client", _ if not same_app:
            return f"client stands apart and may not import {target.name}"
        case "core", "domain" | "interface":
            # A package's own __init__ is imported with the module in any case.
            return None if target.name == module.app else f"core may not import {target.name}"
        case "domain", "interface":
            return f"domain may not import the interface {target.name}"
        case "domain", "domain" if LINE.index(target.app) > LINE.index(module.app):
            return f"{module.app} stands below {target.app} and may not import {target.name}"
        case "interface", "interface" if not same_app:
            return f"interfaces of two apps may not import each other ({target.name})"
    return None


def _clock_fault(module: Module, node: ast.AST) -> str | None:
    if module.layer not in ("core", "domain") or not isinstance(node, ast.Attribute):
        return None
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    if (name, node.attr) in CLOCKS:
        return f"{module.layer} may not read the clock ({name}.{node.attr}): time is an argument"
    return None


def _relation_fault(module: Module, node: ast.AST) -> str | None:
    """Name a foreign key, given as "app.Model", that points up the line."""
    if not isinstance(node, ast.Call) or module.app not in LINE:
        return None
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    targets = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "to")]
    if called not in RELATIONS or not targets or not isinstance(targets[0], ast.Constant):
        return None
    target = targets[0].value
    if not isinstance(target, str):
        return None  # a model that was imported is held by the rule of imports
    app = target.split(".")[0]
    if app in LINE and LINE.index(app) > LINE.index(module.app):
        return f"{module.app} stands below {app}: no foreign key to {target}"
    return None
