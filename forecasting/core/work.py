"""How much a training job computes: floating-point operations of a token, pass by pass.

A forward pass takes 2 operations a parameter and 4·L·h·s of attention; a backward pass as many for
the gradients of activations and again as many for those of weights. So full training takes
6·N + 12·L·h·s a token (Kaplan et al. 2020; Chowdhery et al. 2022, appendix B). Half of the scores
of a causal model are masked, but attention reaches about half of the rate of plain products (Dao
2023, FlashAttention-2), so that it counts whole.
"""

from dataclasses import dataclass

from .training import Settled

STANDARD_ATTENTION = 3.0  # Dao et al. 2022: GPT-2 at 1,024 tokens trains 3 times as fast with flash
UNPACKING = 1.39  # Raschka 2023: QLoRA takes 39 % longer than LoRA in 16 bits
# Forward passes beside the trained one, of models as large as it.
OTHER_PASSES = {
    "sft": (),
    "cpt": (),
    "dpo": ("reference",),
    "rlvr": ("old policy", "reference"),
    "rlhf": ("old policy", "reference", "reward", "values", *("critic trained",) * 3),
}


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs of one trained token (of one sample, if the model has no tokens)."""

    forward: float
    backward: float
    recomputed: float
    other_passes: float
    attention: float  # of the forward pass

    @property
    def per_token(self) -> float:
        return self.forward + self.backward + self.recomputed + self.other_passes


def work_of(job: Settled) -> Work:
    """The FLOPs of a token by the technique, LoRA, checkpointing and experts."""
    spec = job.spec
    attention = 0.0 if spec.forward_flops else 4.0 * job.layers * job.hidden * job.sequence
    if spec.attention == "standard":
        attention *= STANDARD_ATTENTION
    plain = spec.forward_flops or 2.0 * job.active
    base = plain * (UNPACKING if spec.quantized_base else 1.0)
    if spec.lora:
        forward = base + 2.0 * job.trainable + attention
        backward = base + 4.0 * job.trainable + 2.0 * attention
    else:
        weights = plain * min(1.0, job.trainable / spec.parameters)
        forward = base + attention
        backward = base + weights + 2.0 * attention
    recomputed = {"none": 0.0, "selective": attention, "full": forward}[spec.checkpointing]
    others = len(OTHER_PASSES[spec.technique]) * (base + attention)
    return Work(forward, backward, recomputed, others, attention)
