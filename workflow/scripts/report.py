"""Write the report page."""

from pathlib import Path

from strop.plan import load_plan
from strop.stages.report import report
from strop.workflow import job_log

with job_log(snakemake.log[0]):
    report(load_plan(Path(snakemake.params.plan)), Path(snakemake.output[0]).parents[2])
