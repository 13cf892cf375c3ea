"""Take weights out of the torch model, and train what is left.

Reads:   the artifact before it in the chain
Writes:  <results>/prune/{prune_id}/: manifest.json; if the status is ok also weights, model.json
"""


rule prune:
    input:
        unpack(upstream_of("prune")),
    output:
        manifest="<results>/prune/{prune_id}/manifest.json",
    log:
        "<logs>/prune/{prune_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("prune")
    resources:
        mem_mb=memory_of("prune"),
        runtime=minutes_of("prune"),
    params:
        step=step_of("prune"),
        code=code_of("prune"),
        versions=versions_of("prune"),
    script:
        "../scripts/stage.py"
