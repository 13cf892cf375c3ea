"""Prepare the model as its author runs it, with its examples and reference outputs.

Reads:   <results>/dataset/{id}/, the pinned package or the files that the option names
Writes:  <results>/model/{model_id}/: manifest.json; if the status is ok also weights, model.json (or model.onnx), examples/, probes.npz
"""


rule model:
    input:
        unpack(upstream_of("model")),
    output:
        manifest="<results>/model/{model_id}/manifest.json",
    log:
        "<logs>/model/{model_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("model")
    resources:
        mem_mb=memory_of("model"),
        runtime=minutes_of("model"),
    params:
        step=step_of("model"),
        code=code_of("model"),
        versions=versions_of("model"),
    script:
        "../scripts/stage.py"
