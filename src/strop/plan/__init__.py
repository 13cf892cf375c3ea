"""The plan: a study's variants, their chains of steps, and the ids by which equal work is shared."""

from strop.plan.build import make_plan
from strop.plan.store import load_plan, open_plan

__all__ = ["load_plan", "make_plan", "open_plan"]
