"""Build what a runtime loads.

Reads:   the artifact before it in the chain
Writes:  <results>/engine/{engine_id}/: manifest.json; if the status is ok also model.onnx, model.xml or model.engine
"""


rule engine:
    input:
        unpack(upstream_of("engine")),
    output:
        manifest="<results>/engine/{engine_id}/manifest.json",
    log:
        "<logs>/engine/{engine_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("engine")
    resources:
        mem_mb=memory_of("engine"),
        runtime=minutes_of("engine"),
    params:
        step=step_of("engine"),
        code=code_of("engine"),
        versions=versions_of("engine"),
    script:
        "../scripts/stage.py"
