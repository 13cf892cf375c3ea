"""Log the decision and the report in the tracking store."""

from pathlib import Path

from strop.plan import load_plan
from strop.stages.track import track_decision
from strop.workflow import job_log

with job_log(snakemake.log[0]):
    track_decision(load_plan(Path(snakemake.params.plan)), Path(snakemake.output.marker).parents[2])
