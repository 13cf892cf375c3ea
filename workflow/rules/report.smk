"""Write the report page, and the table and plot that Snakemake's own report shows.

Reads:   <results>/studies/{study}/summary.parquet, variants.parquet, and the samples of all runs
Writes:  <results>/studies/{study}/report.html, summary.csv, speedup_quality.svg
"""


rule report:
    input:
        variants="<results>/studies/{study}/variants.parquet",
        summary="<results>/studies/{study}/summary.parquet",
    output:
        page=report(
            "<results>/studies/{study}/report.html",
            category="Study",
            labels={"what": "report"},
        ),
        table=report(
            "<results>/studies/{study}/summary.csv",
            category="Study",
            labels={"what": "summary table"},
        ),
        plot=report(
            "<results>/studies/{study}/speedup_quality.svg",
            category="Study",
            labels={"what": "speedup against quality"},
        ),
    log:
        "<logs>/report/{study}.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        plan=PLAN["path"],
        code=source_digest("strop.stages.report"),
    script:
        "../scripts/report.py"
