"""Why a variant takes the time that it takes: rules over two profiles and what the chain's manifests say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strop.report.profile import (
    ATTENTION,
    CONVERSION,
    CONVOLUTION,
    ELEMENTWISE,
    GENERATED,
    KINDS,
    MOVEMENT,
    NORMALIZATION,
    OUTSIDE,
    PRODUCTS,
    Row,
    Side,
    is_integer,
)

FAST_INTEGERS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})
TELLING = 0.03  # share of a call below which a cause is not worth a sentence
LARGE = 0.25
SKIPPED = 0.5  # products that are cheaper by this part of the zeros are not dense ones
OVERHEAD = {"torch": "Python and dispatch, for each operator", "torch_compile": "guards, Python and entering graphs"}
SILENT = "aot_inductor"  # its kernels do not report themselves


@dataclass(frozen=True)
class Reason:
    """A cause with its evidence; `weight`: share of the variant's call that it may account for [1]."""

    weight: float
    text: str


Rule = Callable[[Side, Side], Reason | None]


def reasons(variant: Side, reference: Side) -> list[Reason]:
    """Return the causes that the evidence speaks for, the weightiest first."""
    found = [reason for rule in RULES if (reason := rule(variant, reference)) and reason.weight > 0]
    return sorted(found, key=lambda reason: -reason.weight)


def ms(seconds: float) -> str:
    """Return a time in milliseconds with three digits, and its unit."""
    return f"{seconds * 1e3:.3g} ms"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f} %"


def names(rows: list[Row], most: int = 3) -> str:
    """Return the types of the costliest operators, with the kernels where those have names of their own."""
    words = (f"{r['operator']} ({r['kernel']})" if r["kernel"] else str(r["operator"]) for r in rows if r["share"] > 0)
    return ", ".join(list(dict.fromkeys(words))[:most])


def dense_zeros(variant: Side, reference: Side) -> Reason | None:
    """Unstructured pruning: kernels for dense weights multiply zeros as any other value."""
    zeros = variant.detail("sparsity") or 0.0
    products, before = variant.seconds(PRODUCTS, CONVOLUTION), reference.seconds(PRODUCTS, CONVOLUTION)
    if zeros < TELLING or not products:
        return None
    alike = variant.facts["runtime"] == reference.facts["runtime"]
    if alike and products < before * (1 - SKIPPED * zeros):
        return None
    kernels = names(variant.of(PRODUCTS, CONVOLUTION))
    return Reason(
        zeros * products / variant.call_s,
        f"{percent(zeros)} of the weights are zeros, but {kernels} are kernels for dense weights, which multiply a "
        f"zero as any other value: products take {ms(products)} of a call, the reference's {ms(before)}",
    )


def conversions(variant: Side, reference: Side) -> Reason | None:
    """Casts, quantizing and reordering that the reference does without."""
    more = variant.seconds(CONVERSION) - reference.seconds(CONVERSION)
    if more < TELLING * variant.call_s:
        return None
    return Reason(
        more / variant.call_s,
        f"{percent(variant.share(CONVERSION))} of a call go into converting types and layouts "
        f"({names(variant.of(CONVERSION))}), of the reference's call {percent(reference.share(CONVERSION))}",
    )


def slow_integers(variant: Side, reference: Side) -> Reason | None:
    """Products of 8-bit integers without the CPU's instructions for them."""
    del reference
    share = sum(row["share"] for row in variant.of(PRODUCTS, CONVOLUTION, ATTENTION) if is_integer(row))
    sets = variant.details["instruction_sets"]
    if share < TELLING or variant.facts.get("device", "cpu") != "cpu" or FAST_INTEGERS & set(sets):
        return None
    text = f"{percent(share)} of a call are products of integers, and this CPU has no instructions for them (VNNI, AMX)"
    return Reason(share, f"{text}; it has {', '.join(sets) or 'none that strop knows'}")


def left_in_float(variant: Side, reference: Side) -> Reason | None:
    """Products that quantization did not reach."""
    del reference
    if not str(variant.facts.get("precision")).startswith("int"):
        return None
    rows = variant.of(PRODUCTS, CONVOLUTION)
    left = [row for row in rows if not is_integer(row)]
    share, all_products = (sum(row["share"] for row in some) for some in (left, rows))
    if share < TELLING:
        return None
    return Reason(
        share,
        f"{percent(share / all_products)} of the time of products is still spent in float ({names(left)}), "
        f"{percent(share)} of a call, though the artifact is {variant.facts['precision']}",
    )


def other_precision(variant: Side, reference: Side) -> Reason | None:
    """The runtime computes in another precision than was asked for."""
    for side in (variant, reference):
        asked, used = side.detail("hint"), side.facts.get("float_precision")
        if asked and used and asked != used:
            whose = "the variant" if side is variant else "the reference"
            return Reason(TELLING, f"{whose} was to compute in {asked}, and {side.facts['runtime']} chose {used}")
    return None


def too_many_threads(variant: Side, reference: Side) -> Reason | None:
    """More threads than CPUs wait for each other."""
    del reference
    threads, cpus = int(variant.facts["threads"]), int(variant.details["cpus"])
    if threads <= cpus:
        return None
    return Reason(1 - cpus / threads, f"{threads} threads share {cpus} CPUs (device.threads), so that they wait")


def sleeping_threads(variant: Side, reference: Side) -> Reason | None:
    """Threads that sleep have to be woken for each operator."""
    del reference
    threads = int(variant.facts["threads"])
    if variant.detail("spinning") is not False or threads < 2:
        return None
    text = f"engine.spinning=false: {threads} threads sleep between operators, and waking them takes time"
    return Reason(TELLING, text)


def graph_breaks(variant: Side, reference: Side) -> Reason | None:
    """torch.compile went back to Python within a call."""
    breaks = int(variant.detail("graph_breaks") or 0)
    if not breaks:
        return None
    why = "; ".join(variant.detail("graph_break_reasons") or [])
    more = max(variant.seconds(OUTSIDE) - reference.seconds(OUTSIDE), TELLING * variant.call_s)
    counted = f"{breaks} graph break{'' if breaks == 1 else 's'}"
    text = f"{counted} in {variant.detail('graphs')} graphs: what is between them runs as Python, and nothing is fused"
    return Reason(more / variant.call_s, f"{text} across them ({why})")


def recompiled(variant: Side, reference: Side) -> Reason | None:
    """A program for each shape: first calls of a shape compile."""
    del reference
    graphs = int(variant.facts.get("graphs") or 0)
    if variant.detail("dynamic") is not False or graphs < 2:
        return None
    text = f"compile.dynamic=false: {graphs} graphs were compiled for the shapes of the profile's batches; a shape that"
    return Reason(TELLING, f"{text} is new is compiled during its call, and each call looks for its graph")


def overhead(variant: Side, reference: Side) -> Reason | None:
    """What is no operator's: Python, dispatch, guards, waking threads."""
    if variant.format == SILENT:
        return None
    ours, theirs = variant.share(OUTSIDE), reference.share(OUTSIDE)
    more = variant.seconds(OUTSIDE) - reference.seconds(OUTSIDE)
    if ours < TELLING or more < TELLING * variant.call_s:
        return None
    what = OVERHEAD.get(variant.format, f"{variant.facts['runtime']}'s own work for each call")
    small = ": the model is too small for its operators to matter" if min(ours, theirs) > LARGE else ""
    return Reason(
        more / variant.call_s,
        f"{percent(ours)} of a call, {ms(variant.seconds(OUTSIDE))}, are outside of operators ({what}); "
        f"in the reference {percent(theirs)}, {ms(reference.seconds(OUTSIDE))}{small}",
    )


def slower_kernels(variant: Side, reference: Side) -> Reason | None:
    """Generated kernels against the library's operators that they replaced."""
    made = variant.seconds(GENERATED)
    if not made:
        return None
    fused = (NORMALIZATION, ELEMENTWISE, ATTENTION, MOVEMENT, CONVERSION)
    replaced = sum(max(reference.seconds(kind) - variant.seconds(kind), 0.0) for kind in fused)
    if made - replaced < TELLING * variant.call_s:
        return None
    longest = names(variant.of(GENERATED), 1)
    return Reason(
        (made - replaced) / variant.call_s,
        f"the kernels that the compiler made take {ms(made)}, the library's operators that they replaced took "
        f"{ms(replaced)}; the longest is {longest}",
    )


def slower_kind(variant: Side, reference: Side) -> Reason | None:
    """The kind of operator that lost most, where it is not spoken of by another rule."""
    spoken_of = {OUTSIDE, CONVERSION, GENERATED}
    if GENERATED in variant.kinds:
        spoken_of |= {NORMALIZATION, ELEMENTWISE}
    lost = {kind: variant.seconds(kind) - reference.seconds(kind) for kind in KINDS if kind not in spoken_of}
    kind = max(lost, key=lambda name: lost[name])
    if lost[kind] < TELLING * variant.call_s:
        return None
    ours, theirs = names(variant.of(kind)), names(reference.of(kind)) or "nothing of the kind"
    return Reason(
        lost[kind] / variant.call_s,
        f"{kind} take {ms(variant.seconds(kind))} ({ours}), in the reference {ms(reference.seconds(kind))} ({theirs})",
    )


RULES: tuple[Rule, ...] = (
    dense_zeros, conversions, slow_integers, left_in_float, other_precision, too_many_threads, sleeping_threads,
    graph_breaks, recompiled, overhead, slower_kernels, slower_kind,
)  # fmt: skip
