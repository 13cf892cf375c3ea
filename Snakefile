"""A study, from its plan to its decision: one rule file a stage, and the plan knows what there is to do."""

import sys

from snakemake.utils import min_version

min_version("9.12")


pathvars:
    results=config.get("results", "results"),
    logs="<results>/logs",


include: "workflow/rules/common.smk"
include: "workflow/rules/dataset.smk"
include: "workflow/rules/model.smk"
include: "workflow/rules/prune.smk"
include: "workflow/rules/export.smk"
include: "workflow/rules/optimize.smk"
include: "workflow/rules/quantize.smk"
include: "workflow/rules/compile.smk"
include: "workflow/rules/engine.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/benchmark.smk"
include: "workflow/rules/track.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/report.smk"


wildcard_constraints:
    **ID_CONSTRAINTS,


rule all:
    default_target: True
    input:
        f"<results>/studies/{STUDY}/report.html",
        f"<results>/studies/{STUDY}/tracked.json",


onsuccess:
    sys.exit(end())


onerror:
    end()
