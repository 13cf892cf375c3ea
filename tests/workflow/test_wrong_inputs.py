"""What a user sees who gets something wrong: one line that says what, where, and how to mend it; then exit code 2."""

import pytest
from project import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = Project(tmp_path_factory.mktemp("project"))
    (made.folder / "conf" / "study" / "typed.yaml").write_text("# @package _global_\nstudy: {name: typed, limts: {}}\n")
    (made.folder / "conf" / "study" / "twice.yaml").write_text(
        "# @package _global_\nstudy: {name: twice}\nquantize: {per_channel: true}\nquantize: {per_channel: false}\n"
    )
    return made


ZEROS = "0" * 64
LINES = [
    (
        "quantize=ort_int8_dynamc",
        "quantize=ort_int8_dynamc: conf/quantize/ has no option 'ort_int8_dynamc'; did you mean 'ort_int8_dynamic'?",
    ),
    ("quantise=none", "quantise: no such setting; did you mean 'quantize'?"),
    (
        "benchmark.batch_size=many",
        "benchmark.batch_size=many: Value 'many' of type 'str' could not be converted to Integer",
    ),
    (
        "engine=openvino engine=onnxruntime",
        "engine: given twice (engine=openvino and engine=onnxruntime); to sweep, write engine=a,b",
    ),
    ("study.limits.quality_dorp=0.1", "study.limits: 'quality_dorp' cannot be limited; did you mean 'quality_drop'?"),
    ("study.tie_breaker=size", "study.tie_breaker: 'size' cannot break ties; did you mean 'size_bytes'?"),
    ("study.objective=sped", "study.objective: 'sped' cannot be an objective; did you mean 'speedup'?"),
    ("study.reference.quantize=nonee", "quantize=nonee: conf/quantize/ has no option 'nonee'; did you mean 'none'?"),
    (
        "model=onnx_file model.source.path=conf/nothing.onnx",
        "model.source.path=conf/nothing.onnx: no such file; known: benchmark, compile, config.yaml,",
    ),
    (
        "model=factory model.factory=../secret.py:build",
        "model.factory=../secret.py: outside of the project's folder; put the file, or a link to it, inside",
    ),
    ("engine=glob(*", "engine=glob(*: not in Hydra's grammar; put texts in quotes: no viable alternative at input"),
    ("quantize='none", "overrides=quantize='none: No closing quotation"),
    ("model.factory_args={hidden: 8}", "--config overrides=...: Snakemake reads a colon and a space as YAML; "),
]


@pytest.mark.parametrize(("overrides", "line"), LINES)
def test_a_wrong_override_is_one_line_before_any_job(project, overrides, line):
    tried = project.snakemake(overrides)
    said = [text for text in tried.stderr.splitlines() if not text.startswith("Using workflow specific profile")]
    assert tried.returncode == 2
    assert len(said) == 1
    assert said[0].startswith(f"strop: {line}")
    assert tried.stdout == ""
    if "'none" not in overrides and ": " not in overrides:
        same = project.run("strop", "plan", "study=smoke", *overrides.split())
        assert (same.returncode, same.stderr.splitlines()) == (2, said)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["strop", "plan", "study=smke"], "study=smke: conf/study/ has no option 'smke'; did you mean 'smoke'?"),
        (["strop", "plan", "study=typed"], "conf/study/typed.yaml: no key 'limts'; did you mean 'limits'?"),
        (["strop", "plan", "study=twice"], "conf/study/twice.yaml: "),
        (["strop", "pln"], "argument COMMAND: invalid choice: 'pln'; did you mean 'plan'?"),
        (
            ["strop", "best", "study=vision"],
            "results/studies/vision/summary.parquet: not there; run it first: strop run",
        ),
        (["strop", "sync", "study=smoke"], "results: study smoke has no runs here; run it first: strop run"),
        (["strop", "ui"], "results/mlflow.db: no embedded MLflow store here; run a study first: strop run"),
        (["strop", "repeat", "model/0"], "model/0: no plan in results/plans has this step; "),
        (["strop", "plan", "study=smoke", "--results", "/proc/strop"], "/proc/strop/plans: cannot be written to ("),
        (["snakemake", "--cores", "1", "--config", "stdy=smoke"], "--config stdy=...: did you mean 'study'?"),
    ],
)
def test_a_wrong_command_is_one_line(project, words, line):
    tried = project.run(*words)
    said = [text for text in tried.stderr.splitlines() if not text.startswith("Using workflow specific profile")]
    assert tried.returncode == 2
    assert len(said) == 1, tried.stderr
    assert said[0].startswith(f"strop: {line}")


def test_a_damaged_plan_is_named(project):
    assert project.run("strop", "plan", "study=smoke").returncode == 0
    plans = sorted((project.results / "plans").glob("*.json"))
    texts = {plan: plan.read_text() for plan in plans}
    for plan in plans:
        plan.write_text(texts[plan][: len(texts[plan]) // 2])
    tried = project.snakemake()
    assert tried.returncode == 2
    assert "not a plan (" in tried.stderr
    assert tried.stderr.strip().endswith("delete results/plans and run again")
    for plan in plans:
        plan.write_text(texts[plan].replace('"batch_size": 1', '"batch_size": 2'))
    assert "its content is not the one it was written with" in project.snakemake().stderr
    for plan, text in texts.items():
        plan.write_text(text)
    assert project.run("strop", "plan", "study=smoke").returncode == 0


def test_a_wrong_sha256_is_refused_and_said_at_the_end(project):
    (project.folder / "weights.pth").write_bytes(b"not these")
    tried = project.snakemake(
        f"quantize=none engine=onnxruntime model.source.path=weights.pth model.source.sha256={ZEROS}"
    )
    assert tried.returncode == 1
    assert "model.source.sha256: weights.pth has " in tried.stdout
    assert f", not {ZEROS}; refused" in tried.stdout
    assert "repeat strop repeat model/" in tried.stdout


def test_a_missing_package_is_a_reason_to_skip(project, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'openvino' else real(name, *rest)\n"
    )
    tried = project.run("strop", "plan", "study=smoke", "benchmark.seed=3", PYTHONPATH=str(tmp_path))
    assert tried.returncode == 0
    assert "engine=openvino: the package 'openvino' is not installed; pip install openvino" in tried.stdout


def test_a_device_that_is_not_here_is_a_reason_to_skip(project):
    tried = project.run("strop", "plan", "study=smoke", "engine=onnxruntime,onnxruntime_cuda,tensorrt", "quantize=none")
    assert tried.returncode == 0
    assert tried.stdout.count("CUDA") >= 2


def test_the_command_line_hands_on_what_yaml_and_shells_would_change(project):
    words = ["model.factory_args={features: 64, classes: 4}", 'study.question="one # two"', "quantize=glob(no*)"]
    tried = project.run("strop", "run", "study=smoke", *words, "-n")
    assert tried.returncode == 0, tried.stderr
    assert "strop: would do" in tried.stderr
