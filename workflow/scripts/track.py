"""Log one run in the tracking store."""

from pathlib import Path

from strop.stages.track import track_run
from strop.workflow import job_log

with job_log(snakemake.log[0]):
    track_run(snakemake.params.plan, snakemake.params.run, Path(snakemake.output.manifest).parents[2])
