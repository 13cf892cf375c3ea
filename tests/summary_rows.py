"""Rows of a summary for tests of the decision."""

MIB = 2**20
LOAD = {"model": "m", "dataset": "d", "device": "cpu", "threads": 1, "scenario": "single_stream", "batch_size": 1}


def row(variant, speedup=None, half=0.05, **more):
    """Return a row of the summary as a measurement leaves it; the speedup's interval is `half` wide to each side."""
    numbers = {}
    if speedup is not None:
        numbers = {"speedup": speedup, "speedup_low": speedup - half, "speedup_high": speedup + half}
    known = {"variant": variant, "run_id": f"run-{variant}", "is_reference": False, "status": "ok", "error": None,
             "size_bytes": 100 * MIB, "quality": 0.9, "artifact": f"engine/{variant}"}  # fmt: skip
    return {**known, **LOAD, **numbers, **more}


def reference(speedup=1.0, half=0.01, **more):
    return row("eager", speedup, half, **{"is_reference": True, "size_bytes": 200 * MIB, "artifact": "model/m", **more})


def drop(low, middle, high, **more):
    return {"quality_drop": middle, "quality_drop_low": low, "quality_drop_high": high, "examples": 872, **more}


def by_name(rows):
    return {made["variant"]: made for made in rows}


def shipped(rows):
    return [made["variant"] for made in rows if made["recommended"]]


def group_one(rows):
    return [made["variant"] for made in rows if made["tie_group"] == 1]
