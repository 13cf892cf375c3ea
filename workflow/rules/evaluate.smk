"""Measure quality on the very artifact that is timed, in its runtime.

Reads:   a variant's last artifact; test examples of the model
Writes:  <results>/evaluate/{evaluate_id}/: manifest.json; if the status is ok also predictions.parquet
"""


rule evaluate:
    input:
        unpack(upstream_of("evaluate")),
    output:
        manifest="<results>/evaluate/{evaluate_id}/manifest.json",
    log:
        "<logs>/evaluate/{evaluate_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("evaluate")
    resources:
        mem_mb=memory_of("evaluate"),
        runtime=minutes_of("evaluate"),
    params:
        step=step_of("evaluate"),
        code=code_of("evaluate"),
        versions=versions_of("evaluate"),
    script:
        "../scripts/stage.py"
