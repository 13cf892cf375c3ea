"""Log runs in MLflow while the study goes on, and the decision when it ends.

Reads:   <results>/benchmark/{id}/, <results>/evaluate/{id}/, <results>/studies/{study}/summary.parquet
Writes:  <results>/track/{track_id}/manifest.json, <results>/studies/{study}/tracked.json; the tracking store
"""


rule track:
    input:
        unpack(measured),
    output:
        manifest="<results>/track/{track_id}/manifest.json",
    log:
        "<logs>/track/{track_id}.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        run=run_of,
        plan=plan_of_run,
        store=digest(tracking_uri()),
        code=source_digest("strop.stages.track"),
    script:
        "../scripts/track.py"


rule track_decision:
    input:
        summary="<results>/studies/{study}/summary.parquet",
        report="<results>/studies/{study}/report.html",
    output:
        marker="<results>/studies/{study}/tracked.json",
    log:
        "<logs>/track/{study}.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        plan=PLAN["path"],
        store=digest(tracking_uri()),
        code=source_digest("strop.stages.track"),
    script:
        "../scripts/track_decision.py"
