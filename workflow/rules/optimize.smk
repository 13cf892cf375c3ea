"""Rewrite the graph without changing what it computes: fold, fuse, drop what nothing needs.

Reads:   the artifact before it in the chain
Writes:  <results>/optimize/{optimize_id}/: manifest.json; if the status is ok also model.onnx or weights
"""


rule optimize:
    input:
        unpack(upstream_of("optimize")),
    output:
        manifest="<results>/optimize/{optimize_id}/manifest.json",
    log:
        "<logs>/optimize/{optimize_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("optimize")
    resources:
        mem_mb=memory_of("optimize"),
        runtime=minutes_of("optimize"),
    params:
        step=step_of("optimize"),
        code=code_of("optimize"),
        versions=versions_of("optimize"),
    script:
        "../scripts/stage.py"
