"""Fetch labelled examples and split them: train, calibration, test.

Reads:   the pinned package or the files that the option names
Writes:  <results>/dataset/{dataset_id}/: manifest.json; if the status is ok also train.parquet, calibration.parquet, test.parquet
"""


rule dataset:
    input:
        unpack(upstream_of("dataset")),
    output:
        manifest="<results>/dataset/{dataset_id}/manifest.json",
    log:
        "<logs>/dataset/{dataset_id}.job.log",
    conda:
        "../../envs/cpu.yaml"
    threads: threads_of("dataset")
    resources:
        mem_mb=memory_of("dataset"),
        runtime=minutes_of("dataset"),
    params:
        step=step_of("dataset"),
        code=code_of("dataset"),
        versions=versions_of("dataset"),
    script:
        "../scripts/stage.py"
