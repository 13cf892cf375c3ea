"""The finished study that tests of the workflow and of commands read."""

import pytest
from project import Project


@pytest.fixture(scope="session")
def done(tmp_path_factory):
    """The smoke study, run once from nothing; tests only read it."""
    project = Project(tmp_path_factory.mktemp("project"))
    project.first = project.snakemake()
    assert project.first.returncode == 0, project.first.stderr
    return project
