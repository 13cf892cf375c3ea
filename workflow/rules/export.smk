"""Write the torch model as an ONNX graph.

Reads:   the artifact before it in the chain
Writes:  <results>/export/{export_id}/: manifest.json; if the status is ok also model.onnx
"""


rule export:
    input:
        unpack(upstream_of("export")),
    output:
        manifest="<results>/export/{export_id}/manifest.json",
    log:
        "<logs>/export/{export_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("export")
    resources:
        mem_mb=memory_of("export"),
        runtime=minutes_of("export"),
    params:
        step=step_of("export"),
        code=code_of("export"),
        versions=versions_of("export"),
    script:
        "../scripts/stage.py"
