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
    params:
        step=step_of("dataset"),
        code=source_digest("strop.stages.dataset"),
        versions=versions_of("dataset"),
    threads: threads_of("dataset")
    resources:
        mem_mb=memory_of("dataset"),
        runtime=minutes_of("dataset"),
    conda:
        "../../envs/cpu.yaml"
    script:
        "../scripts/stage.py"
