"""One side of an explanation: an artifact's chain and profile, and the coarse kinds of operators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from strop.artifact import Manifest

Row = dict[str, Any]
PRODUCTS, CONVOLUTION, ATTENTION = "matrix products", "convolution", "attention and softmax"
NORMALIZATION, ELEMENTWISE = "normalization", "activation, elementwise, sums"
GENERATED, CONVERSION, MOVEMENT = "generated kernels", "conversion of types and layouts", "memory movement"
OTHER, OUTSIDE = "other", "outside of operators"
KINDS = (
    PRODUCTS, CONVOLUTION, ATTENTION, NORMALIZATION, ELEMENTWISE, GENERATED, CONVERSION, MOVEMENT, OTHER, OUTSIDE,
)  # fmt: skip
# The first pattern that is found in an operator's type, in small letters, tells its kind.
PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (OUTSIDE, r"^(torchdynamo|torch-compiled|pregraph|aotdispatcher|## call|forward$|outside of operators)"),
        (GENERATED, r"cpp_|triton_"),
        (CONVERSION, r"(de)?quantizelinear$"),
        (ATTENTION, r"attention|softmax|flash"),
        (NORMALIZATION, r"norm|mvn"),
        (CONVOLUTION, r"conv(?!ert)"),
        (PRODUCTS, r"matmul|gemm|linear|addmm|bmm|\bmm\b|_mm\b|fullyconnected|einsum"),
        (CONVERSION, r"quant|reorder|convert|cast|_to_copy|::to$"),
        (
            MOVEMENT,
            r"transpose|reshape|copy|view|cat|slice|split|gather|embedding|index|squeeze|expand|permute|strided",
        ),
        (MOVEMENT, r"clone|contiguous|pad|tile|empty|resolve_conj|select|shape|identity|::t$|::item$|local_scalar"),
        (ELEMENTWISE, r"elu|sigmoid|tanh|erf|add|sub|mul|div|pow|sqrt|exp|log|where|min|max|clip|clamp|eltwise|swish"),
        (ELEMENTWISE, r"hard|fill|reduce|mean|sum|pool|equal|::eq$|::ne$|::g[et]$|::l[et]$|neg|abs|not|and|or$"),
    )
)
INTEGER_TYPE = re.compile(r"integer|dynamicquantizematmul|qgemm|qlinear|nbits|int_mm|quantized::|qattention")
INTEGER_KERNEL = re.compile(r"[iu](8|4)$")


def kind_of(operator: str) -> str:
    """Return an operator's kind, one of `KINDS`, by its type as any runtime calls it."""
    return next((kind for kind, pattern in PATTERNS if pattern.search(operator.lower())), OTHER)


def is_integer(row: Row) -> bool:
    """Return whether an operator multiplies integers, by its type or by the precision in its kernel's name."""
    return bool(INTEGER_TYPE.search(row["operator"].lower()) or INTEGER_KERNEL.search(row["kernel"] or ""))


@dataclass(frozen=True)
class Side:
    """A variant or a reference.

    Attributes:
        name: for sentences.
        chain: manifests of the steps that made it, from the model to what is timed.
        details: of its profile.
        rows: its operators, the costliest first.
    """

    name: str
    chain: Sequence[Manifest]
    details: dict[str, Any]
    rows: Sequence[Row]

    @property
    def call_s(self) -> float:
        """Time of a call that is not profiled, in the mean [s]."""
        return float(self.details["call_s"])

    @property
    def facts(self) -> dict[str, Any]:
        """What the session said of itself."""
        found: dict[str, Any] = self.details["facts"]
        return found

    @property
    def format(self) -> str:
        """Format of what is timed."""
        return str(self.chain[-1].format)

    @cached_property
    def kinds(self) -> dict[str, float]:
        """Kind of operator -> its time in a call [s]: its share of the profile, of a call that is not profiled."""
        found: dict[str, float] = defaultdict(float)
        for row in self.rows:
            found[kind_of(row["operator"])] += row["share"] * self.call_s
        return found

    def of(self, *kinds: str) -> list[Row]:
        """Return the operators of some kinds, the costliest first."""
        return [row for row in self.rows if kind_of(row["operator"]) in kinds]

    def seconds(self, *kinds: str) -> float:
        """Return the time of some kinds in a call [s]."""
        return sum(self.kinds.get(kind, 0.0) for kind in kinds)

    def share(self, *kinds: str) -> float:
        """Return the share of some kinds in a call [1]."""
        return self.seconds(*kinds) / self.call_s

    def detail(self, name: str) -> Any:
        """Return what the last step that says anything of `name` says; None: no step does."""
        return next((step.details[name] for step in reversed(self.chain) if step.details.get(name) is not None), None)

    def types(self) -> dict[str, float]:
        """Return operator type -> its time in a call [s], the costliest first."""
        found: dict[str, float] = defaultdict(float)
        for row in self.rows:
            found[row["operator"]] += row["share"] * self.call_s
        return dict(sorted(found.items(), key=lambda item: -item[1]))
