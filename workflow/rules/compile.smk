"""Compile the torch model.

Reads:   the artifact before it in the chain
Writes:  <results>/compile/{compile_id}/: manifest.json; if the status is ok also model.ts, model.pt2 or weights with a compile cache
"""


rule compile:
    input:
        unpack(upstream_of("compile")),
    output:
        manifest="<results>/compile/{compile_id}/manifest.json",
    log:
        "<logs>/compile/{compile_id}.job.log",
    params:
        step=step_of("compile"),
        code=source_digest("strop.stages.compile"),
        versions=versions_of("compile"),
    threads: threads_of("compile")
    resources:
        mem_mb=memory_of("compile"),
        runtime=minutes_of("compile"),
    conda:
        "../../envs/cpu.yaml"
    script:
        "../scripts/stage.py"
