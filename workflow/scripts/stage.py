"""Do one step of the plan."""

from pathlib import Path

from strop.workflow import do_step

do_step(
    snakemake.params.step,
    output=snakemake.output.manifest,
    log=snakemake.log[0],
    project=Path(snakemake.scriptdir).resolve().parents[1],
)
