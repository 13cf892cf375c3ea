"""Gather all runs of a study in two tables, and decide.

Reads:   <results>/track/{id}/manifest.json and, behind it, all that was measured
Writes:  <results>/studies/{study}/variants.parquet, <results>/studies/{study}/summary.parquet
"""


rule aggregate:
    input:
        tracks=all_tracks(),
    output:
        variants="<results>/studies/{study}/variants.parquet",
        summary="<results>/studies/{study}/summary.parquet",
    log:
        "<logs>/aggregate/{study}.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        plan=PLAN["path"],
        code=source_digest("strop.stages.aggregate"),
    script:
        "../scripts/aggregate.py"
