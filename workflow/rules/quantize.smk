"""Give weights and activations fewer bits.

Reads:   the artifact before it in the chain; calibration examples of the model
Writes:  <results>/quantize/{quantize_id}/: manifest.json; if the status is ok also model.onnx, model.xml or weights
"""


rule quantize:
    input:
        unpack(upstream_of("quantize")),
    output:
        manifest="<results>/quantize/{quantize_id}/manifest.json",
    log:
        "<logs>/quantize/{quantize_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("quantize")
    resources:
        mem_mb=memory_of("quantize"),
        runtime=minutes_of("quantize"),
    params:
        step=step_of("quantize"),
        code=code_of("quantize"),
        versions=versions_of("quantize"),
    script:
        "../scripts/stage.py"
