"""Measure a variant against its reference, in turns, with the machine to itself.

Reads:   a variant's last artifact and its reference's; test examples of the model
Writes:  <results>/benchmark/{benchmark_id}/: manifest.json; if the status is ok also samples.parquet
"""


# A benchmark owns the machine: all cores, so that no other job runs beside it; and no retries.
rule benchmark:
    input:
        unpack(upstream_of("benchmark")),
    output:
        manifest="<results>/benchmark/{benchmark_id}/manifest.json",
    log:
        "<logs>/benchmark/{benchmark_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: workflow.cores
    resources:
        mem_mb=memory_of("benchmark"),
        runtime=minutes_of("benchmark"),
        slurm_extra="'--exclusive'",
    params:
        step=step_of("benchmark"),
        code=code_of("benchmark"),
        versions=versions_of("benchmark"),
    script:
        "../scripts/stage.py"
