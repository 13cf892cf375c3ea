"""The text of `strop explain`: verdict, what became of the artifact, operators beside the reference's, and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from strop.artifact import Manifest
from strop.columns import with_interval
from strop.report.profile import KINDS, OUTSIDE, Side
from strop.report.reasons import ms, percent, reasons
from strop.report.tables import load_of

TOP = 6
SHOWN = (
    "precision", "hint", "providers", "execution", "spinning", "sparsity", "parameters_before", "parameters", "graphs",
    "graph_breaks", "graph_break_reasons", "dynamic", "mode", "nodes_before", "nodes", "fusions", "quantized_share",
    "audit",
)  # fmt: skip
CAREFUL = "Profiling slows calls, those of small operators most. Times are shares of the profile, times the time of"


def verdict_lines(rows: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> list[str]:
    """Return what the study found of a variant, one line for each load, and how a failure is repeated.

    Args:
        rows: of the summary; empty if the study has not come to its end.
        run: of the plan, for its name.
    """
    own = [row for row in rows if row["variant_id"] == run["variant_id"]]
    if not own:
        return [f"{run['variant']}: the study has no row of it yet."]
    return [line for row in own for line in _verdict(row)]


def _verdict(row: Mapping[str, Any]) -> Iterator[str]:
    name = f"{row['variant']} ({load_of(dict(row))})"
    if row["status"] != "ok":
        yield f"{name}: {row['status']}: {row['error']}"
        yield from (f"  {word}: {row[word]}" for word in ("log", "repeat") if row[word])
        return
    drop = with_interval(row, "quality_drop")
    quality = f", quality drop {drop} points" if drop else ""
    low, high = row["speedup_low"] or 0.0, row["speedup_high"] or 0.0
    word = "slower than" if high < 1 else "faster than" if low > 1 else "not to be told apart from"
    yield f"{name}: {word} the reference, speedup {with_interval(row, 'speedup')}{quality}"


def failure_lines(manifest: Manifest) -> list[str]:
    """Return why a step failed, and the log and the command that show more."""
    root = manifest.details.get("root", {"step": manifest.key, "status": manifest.status, "error": manifest.error})
    lines = [f"{root['step']} ended as {root['status']}: {root['error']}"]
    return lines + [f"  {word}: {text}" for word, text in (("log", manifest.log), ("repeat", manifest.repeat)) if text]


def chain_lines(chain: Iterable[Manifest]) -> list[str]:
    """Return what the steps say of what they made, audits included."""
    lines = []
    for step in chain:
        lines.append(f"{step.key} {step.option}: {step.format}, {step.size_bytes / 2**20:.2f} MiB")
        for name in SHOWN:
            if step.details.get(name) not in (None, {}, []):
                lines += _readable(name, step.details[name], "  ")
    return lines


def _readable(name: str, value: Any, indent: str) -> list[str]:
    """Return a value as `name: value`; a list of texts, or a dictionary with other ones in it, has a line for each."""
    if isinstance(value, dict) and any(isinstance(item, dict | list) for item in value.values()):
        kept = {str(key): item for key, item in value.items() if item is not None}
        inner = [line for key, item in kept.items() for line in _readable(key, item, indent + "  ")]
        return [f"{indent}{name}:", *inner]
    if isinstance(value, dict):
        text = ", ".join(f"{key} {_word(item)}" for key, item in value.items())
        return [f"{indent}{name}: {text or 'none'}"]
    if isinstance(value, list):
        if any(isinstance(item, dict) or " " in str(item) for item in value):
            return [f"{indent}{name}:", *(f"{indent}  {_word(item)}" for item in value)]
        return [f"{indent}{name}: {', '.join(map(_word, value)) or 'none'}"]
    return [f"{indent}{name}: {_word(value)}"]


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_word(item)}" for key, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def operator_lines(variant: Side, reference: Side) -> list[str]:
    """Return time by kind of operator of both sides, and the types of operators that make most of the difference."""
    rows = [("ms of a call", "reference", "variant", "difference")]
    kinds = [kind for kind in KINDS if variant.seconds(kind) or reference.seconds(kind)]
    rows += [_row(kind, reference.seconds(kind), variant.seconds(kind)) for kind in kinds]
    rows.append(_row("all", reference.call_s, variant.call_s))
    ours, theirs = variant.types(), reference.types()
    change = {name: ours.get(name, 0.0) - theirs.get(name, 0.0) for name in ours | theirs}
    most = sorted(change, key=lambda name: -abs(change[name]))[:TOP]
    tops = [("operators that differ most", "reference", "variant", "difference")]
    tops += [_row(name, theirs.get(name, 0.0), ours.get(name, 0.0)) for name in most]
    return [*_aligned(rows), "", *_aligned(tops)]


def _row(name: str, before: float, after: float) -> tuple[str, str, str, str]:
    short = name if len(name) <= 60 else f"{name[:57]}..."
    return short, f"{before * 1e3:.4g}", f"{after * 1e3:.4g}", f"{(after - before) * 1e3:+.3g}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def profile_lines(side: Side) -> str:
    """Return how a side was profiled, in a line."""
    found, facts = side.details, side.facts
    return (
        f"{side.name}: {facts['runtime']} {facts['version']}, {facts['precision']}, {facts['threads']} of "
        f"{found['cpus']} CPUs; a call takes {ms(found['call_s'])}, profiled {ms(found['profiled_call_s'])}, of which "
        f"operators took {percent(1 - side.share(OUTSIDE))}"
    )


def explanation(variant: Side, reference: Side) -> list[str]:
    """Return profiles side by side and the likeliest reasons, as lines."""
    found = reasons(variant, reference)
    listed = [f"{at}. {reason.text}." for at, reason in enumerate(found, 1)]
    nothing = "None of the causes that strop knows shows in the profile."
    return [
        profile_lines(reference),
        profile_lines(variant),
        "",
        *operator_lines(variant, reference),
        f"{CAREFUL} {variant.details['calls']} calls that were not profiled.",
        "",
        "Likeliest reasons for the time that it takes:",
        *(listed or [nothing]),
    ]
