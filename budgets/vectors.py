"""The sum rule and the whole-vector rule, on plain integers."""

from collections.abc import Iterable, Mapping

from django.utils.translation import gettext_noop

from budgets.models import WHOLE, Budget
from budgets.refusals import Refused, percent
from budgets.shares import Vector
from clusters.models import Pool
from clusters.saying import say as _


def vector_from(
    shares: Mapping[Budget, int], overrides: Mapping[tuple[Budget, Pool], int]
) -> Vector:
    """Return shares and overrides as a vector; refuses what isn't 0 to 100,000 thousandths."""
    vector: Vector = {child.pk: {None: _thousandths(child, v)} for child, v in shares.items()}
    for (child, pool), value in overrides.items():
        if child.pk not in vector:
            raise Refused(
                "overrides",
                _(
                    "%(child)s has a share in %(pool)s but none to override.",
                    child=child.path,
                    pool=pool.slug,
                ),
            )
        vector[child.pk][pool.pk] = _thousandths(child, value)
    return vector


def children_by_slug(parent: Budget, slugs: Iterable[str]) -> dict[str, Budget]:
    """Return the parent's children with these slugs; refuses one that it doesn't have."""
    children = {child.slug: child for child in parent.children.all()}
    for slug in slugs:
        if slug not in children:
            active = sorted(s for s, child in children.items() if child.archived_at is None)
            raise Refused(
                "shares",
                _(
                    "%(parent)s has no child %(slug)s: name %(names)s.",
                    parent=parent.path,
                    slug=repr(slug),
                    names=", ".join(active) or _("none"),
                ),
            )
    return children


def check_names(parent: Budget, vector: Vector, *, expected: set[int]) -> None:
    """Refuse a vector that isn't exactly the parent's active children."""
    missing, unknown = expected - set(vector), set(vector) - expected
    for ids, words in (
        (
            missing,
            gettext_noop(
                "%(names)s is missing: a change set names every active child of %(parent)s."
            ),
        ),
        (unknown, gettext_noop("%(names)s is not an active child of %(parent)s.")),
    ):
        if ids:
            names = ", ".join(Budget.objects.filter(pk__in=ids).values_list("path", flat=True))
            raise Refused("shares", _(words, names=names, parent=parent.path))


def check_sums(parent: Budget, vector: Vector, *, before: Vector) -> None:
    """Refuse a vector that totals over 100 % in any pool; names the pool and the row that binds.

    The row that binds is the one raised most since the base (then the largest, then the first by
    path): lower that one, or others, by what is too much.
    """
    pools = sorted({p for row in vector.values() for p in row if p is not None})
    for pool in (None, *pools):
        now = {child: row.get(pool, row[None]) for child, row in vector.items()}
        excess = sum(now.values()) - WHOLE
        if excess > 0:
            was = {child: row.get(pool, row[None]) for child, row in before.items()}
            raise Refused("shares", _over_whole(parent, pool, excess, now, was))


def _over_whole(
    parent: Budget, pool_id: int | None, excess: int, now: dict[int, int], was: dict[int, int]
) -> str:
    paths = dict(Budget.objects.filter(pk__in=now).values_list("pk", "path"))
    binding = min(now, key=lambda c: (was.get(c, 0) - now[c], -now[c], paths.get(c, "")))
    where = _(" in %(pool)s", pool=Pool.objects.get(pk=pool_id).slug) if pool_id else ""
    change = _(", was %(share)s", share=percent(was[binding])) if binding in was else ""
    return _(
        "The shares of %(parent)s total %(whole)s%(where)s, %(excess)s too much. "
        "%(binding)s (%(now)s%(change)s) binds: lower it, or others, by %(excess)s.",
        parent=parent.path,
        whole=percent(WHOLE + excess),
        where=where,
        excess=percent(excess),
        binding=paths[binding],
        now=percent(now[binding]),
        change=change,
    )


def _thousandths(child: Budget, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(
            "shares",
            _("The share of %(child)s is not a whole number of thousandths.", child=child.path),
        )
    if not 0 <= value <= WHOLE:
        raise Refused(
            "shares",
            _(
                "The share of %(child)s is %(value)s: give 0 to 100.000 %%.",
                child=child.path,
                value=percent(value),
            ),
        )
    return value
