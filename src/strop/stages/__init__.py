"""Stages: one file a stage, one function an option. They know nothing of Snakemake, Hydra or MLflow."""
