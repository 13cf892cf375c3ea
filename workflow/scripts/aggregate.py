"""Gather all runs of a study in two tables."""

from pathlib import Path

from strop.plan import load_plan
from strop.stages.aggregate import aggregate
from strop.workflow import job_log

with job_log(snakemake.log[0]):
    aggregate(load_plan(Path(snakemake.params.plan)), Path(snakemake.output[0]).parents[2])
