"""Which kinds of work can be read and estimated, and by what: the one place that chooses.

Each row has the same shape, so that whoever stores, serves and scores forecasts knows no kind:
`read` refuses in a sentence (a ValueError), the rest takes what it answered. A further kind is a
row more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from . import estimate, inference, physics, quantizing
from .correction import Correction
from .describing import Described, describe
from .reading import training_spec


class Answer(Protocol):
    """A forecast on `gpus` GPUs: whole seconds p10 ≤ p50 ≤ p90, and what they follow from."""

    @property
    def gpus(self) -> int: ...
    @property
    def p10(self) -> int: ...
    @property
    def p50(self) -> int: ...
    @property
    def p90(self) -> int: ...
    @property
    def fits(self) -> bool: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...
    @property
    def version(self) -> str: ...


class Read(Protocol):
    """`gpu` and `gpus` are what the job will run on; what the work itself names wins or clashes."""

    def __call__(
        self, work: Mapping[str, Any], *, gpu: str = "", gpus: int | None = None, project: str = ""
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """How jobs of one kind are read, told apart, estimated, and learned from."""

    version: str
    read: Read
    variant: Callable[[Any], str]  # what its track record is kept apart by
    estimate: Callable[[Any, Correction, int], Answer]
    fitting: Callable[[Any, int], Sequence[int]]  # counts of GPUs, powers of two up to the most
    describe: Callable[[Any, int], Described]
    least: Callable[[Any], int]  # the fewest GPUs that hold it; refuses if none do


KINDS: dict[str, Kind] = {
    "training": Kind(
        version=estimate.VERSION,
        read=training_spec,
        variant=lambda spec: str(spec.variant),
        estimate=estimate.estimate,
        fitting=physics.fitting,
        describe=describe,
        least=physics.least_that_fits,
    ),
    "batch_inference": Kind(
        version=inference.VERSION,
        read=inference.spec_of,
        variant=lambda spec: str(spec.precision),
        estimate=inference.estimate,
        fitting=inference.fitting,
        describe=inference.describe,
        least=inference.least_that_fits,
    ),
    "quantization": Kind(
        version=quantizing.VERSION,
        read=quantizing.spec_of,
        variant=lambda spec: str(spec.method),
        estimate=quantizing.estimate,
        fitting=quantizing.fitting,
        describe=quantizing.describe,
        least=quantizing.least_that_fits,
    ),
}
