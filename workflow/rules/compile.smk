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
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("compile")
    resources:
        mem_mb=memory_of("compile"),
        runtime=minutes_of("compile"),
    params:
        step=step_of("compile"),
        code=code_of("compile"),
        versions=versions_of("compile"),
    script:
        "../scripts/stage.py"
