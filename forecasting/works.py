"""Estimates by what a job computes: physics, corrected by how like jobs came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.saying import say as _
from forecasting import estimators
from forecasting.core.hardware import UnknownName, gpu_type
from forecasting.core.kinds import KINDS, Answer, Kind
from forecasting.core.quantiles import LONGEST_S

MOST_GPUS = 1024  # powers of two that options are looked for among
# Whether a work makes sense doesn't hang on the type of GPU, but a description has one.
ANY_GPU = "H100-SXM"


class CannotEstimate(ValueError):
    """One sentence on why what a job computes gives no estimate."""


@dataclass(frozen=True)
class Physical:
    """Whole seconds on `gpus` GPUs, over the types that the job may run on.

    p10 is that of the fastest type, p90 that of the slowest, p50 that of the middle one (of two
    the slower). `fits` says whether it fits in the memory of each.
    """

    gpus: int
    p10_s: int
    p50_s: int
    p90_s: int
    fits: bool
    variant: str
    method: str
    version: str
    reasons: tuple[str, ...]


def problem_with(*, kind: str, work: Mapping[str, Any], gpus: int | None) -> str | None:
    """Return what is wrong with a description of what a job computes, in one sentence."""
    row = KINDS.get(kind)
    if row is None:
        can = ", ".join(KINDS)
        return _("What it computes can be given for %(can)s only: leave work out.", can=can)
    try:
        row.read(work, gpu=ANY_GPU, gpus=gpus)
    except ValueError as error:
        return str(error)
    return None


def physical(
    *, kind: str, work: Mapping[str, Any], gpus: int, gpu_types: Iterable[str], project: str = ""
) -> Physical:
    """Estimate on `gpus` GPUs of the types that the job may run on. At most two queries.

    `gpu_types` are as pools name them; a type that the work itself names counts alone. Raises
    CannotEstimate.
    """
    types, said = _types(work, gpu_types)
    asked = _Asked(kind, work, types, project, estimators.in_force(_known_kind(kind)))
    return _on(asked, gpus, said)


def options(
    *, kind: str, work: Mapping[str, Any], gpu_types: Iterable[str], project: str = ""
) -> list[Physical]:
    """The estimate on each power of two up to `MOST_GPUS` that it fits on, whatever the type.

    Raises CannotEstimate, also where it fits on none. At most two queries.
    """
    given = {name: value for name, value in work.items() if name != "gpus"}
    types, said = _types(given, gpu_types)
    asked = _Asked(kind, given, types, project, estimators.in_force(_known_kind(kind)))
    try:
        counts = [set(asked.row.fitting(asked.spec(name), MOST_GPUS)) for name in types]
        for name in types:
            asked.row.least(asked.spec(name))
    except ValueError as error:
        raise CannotEstimate(str(error)) from error
    return [_on(asked, gpus, said) for gpus in sorted(set.intersection(*counts))]


@dataclass(frozen=True)
class _Asked:
    """What is estimated, on which types, by what was learned."""

    kind: str
    work: Mapping[str, Any]
    types: Sequence[str]
    project: str
    learned: estimators.InForce

    @property
    def row(self) -> Kind:
        return KINDS[self.kind]

    def spec(self, gpu: str, gpus: int | None = None) -> Any:
        return self.row.read(self.work, gpu=gpu, gpus=gpus, project=self.project)


def _on(asked: _Asked, gpus: int, said: Sequence[str]) -> Physical:
    row, learned = asked.row, asked.learned
    found: list[tuple[Answer, str]] = []
    try:
        for name in asked.types:
            spec = asked.spec(name, gpus)
            found.append((row.estimate(spec, learned.correction, gpus), name))
    except (ValueError, ArithmeticError) as error:
        raise CannotEstimate(str(error)) from error
    found.sort(key=lambda one: (one[0].p90, one[1]))
    answers = [one[0] for one in found]
    return Physical(
        gpus=gpus,
        p10_s=min(one.p10 for one in answers),
        p50_s=sorted(one.p50 for one in answers)[len(answers) // 2],
        p90_s=answers[-1].p90,
        fits=all(one.fits for one in answers),
        variant=row.variant(spec),
        method="physics+history" if learned.corrects else "physics",
        version=learned.version,
        reasons=(
            *said,
            *_cut(answers[-1].p90),
            *_of_several([one[1] for one in found]),
            *answers[-1].reasons,
        ),
    )


def _cut(p90_s: int) -> tuple[str, ...]:
    if p90_s < LONGEST_S:
        return ()
    return (_("Nothing longer than 68 years is told: the range ends there."),)


def _of_several(types: Sequence[str]) -> tuple[str, ...]:
    if len(types) < 2:
        return ()
    return (
        _(
            "It may run on %(others)s or %(slowest)s: p10 is that of the fastest, p90 and what "
            "follows are those of the slowest, %(slowest)s.",
            others=", ".join(types[:-1]),
            slowest=types[-1],
        ),
    )


def _types(
    work: Mapping[str, Any], gpu_types: Iterable[str]
) -> tuple[Sequence[str], tuple[str, ...]]:
    """The types by their own names, in a fixed order, and what is to be said of them."""
    if own := work.get("gpu") or work.get("gpu_type"):
        try:
            name = gpu_type(str(own)).name
        except UnknownName as error:
            raise CannotEstimate(str(error)) from error
        return (name,), (_("On %(name)s, as what it computes says.", name=name),)
    found, unknown = set(), set()
    for one in gpu_types:
        try:
            found.add(gpu_type(one).name)
        except UnknownName:
            unknown.add(one)
    listed = ", ".join(sorted(unknown))
    if not found:
        raise CannotEstimate(
            _(
                "No acceptable pool has a type of GPU that is known (%(value)s): name one as "
                '"gpu" in what it computes.',
                value=listed or "none",
            )
        )
    said = (_("Nothing is known of %(listed)s: left out.", listed=listed),) if unknown else ()
    return sorted(found), said


def _known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise CannotEstimate(_("Nothing reads what jobs of this kind compute."))
    return kind
