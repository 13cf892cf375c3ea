"""Overrides, axes and errors, on the project's own conf/."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from strop.errors import StropError
from strop.plan.compose import Composer, register_schema
from strop.plan.sweep import make_sweep

CONF = Path(__file__).parents[2] / "conf"


@pytest.fixture(scope="module")
def composer():
    return Composer(CONF)


def test_command_line_replaces_the_axis_of_the_study(composer):
    whole = make_sweep(["study=smoke"], composer)
    narrow = make_sweep(["study=smoke", "engine=openvino"], composer)
    assert len(whole.combinations) == 4
    assert set(whole.axes) == {"quantize", "engine"}
    assert len(narrow.combinations) == 2
    assert set(narrow.axes) == {"quantize"}
    assert "engine=openvino" in narrow.fixed


def test_hydras_grammar_sweeps(composer):
    options = composer.groups["quantize"]
    assert len(make_sweep(["study=smoke", "quantize=glob(*)", "engine=none"], composer).combinations) == len(options)
    assert len(make_sweep(["study=smoke", "device.threads=range(1,4)"], composer).combinations) == 12
    assert len(make_sweep(["study=smoke", "device.threads=choice(1,2)"], composer).combinations) == 8


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["quantize=ort_int8_dynamc"],
            "conf/quantize/ has no option 'ort_int8_dynamc'; did you mean 'ort_int8_dynamic'?",
        ),
        (["quantise=none"], "quantise: no such setting; did you mean 'quantize'?"),
        (["quantize.per_chanel=true"], "did you mean 'quantize.per_channel'?"),
        (["benchmark.batchsize=4"], "did you mean 'benchmark.batch_size'?"),
        (["quantize.per_channel=maybe"], "quantize.per_channel=maybe: Value 'maybe' is not a valid bool"),
        (["benchmark.batch_size=1.5"], "benchmark.batch_size=1.5: Value '1.5' of type 'float' could not be converted"),
        (["study=quikstart"], "conf/study/ has no option 'quikstart'; did you mean 'quickstart'?"),
        (["quantize=none", "quantize=bf16"], "quantize: given twice (quantize=none and quantize=bf16)"),
        (["~quantize=none"], "'~' is not supported"),
        (["+quantize=none"], "'+' is not supported"),
        (["quantize"], "quantize: not an override; write key=value"),
        (["quantize.weight_type=int7"], "quantize.weight_type=int7: not a choice; did you mean 'int8'?"),
        (["engine=interval(0,1)"], "does not support sweep type"),
        (["quantize@x=none"], "'quantize@x' is not a setting's name"),
    ],
)
def test_mistake_is_one_line_with_the_nearest_right_word(composer, overrides, message):
    def compose_first():
        sweep = make_sweep(["study=smoke", *overrides] if overrides[0][:6] != "study=" else overrides, composer)
        return composer.compose(list(sweep.combinations[0]))

    with pytest.raises(StropError) as caught:
        compose_first()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# @package _global_\nstudy: {nme: x}\n", "conf/study/mine.yaml: no key 'nme'; did you mean 'name'?"),
        ("# @package _global_\nstudy: {name: x\n", "conf/study/mine.yaml: line 2: not YAML"),
        (
            "# @package _global_\ndefaults:\n  - override /quantise: none\n",
            "no group 'quantise'; did you mean 'quantize'?",
        ),
        (
            "# @package _global_\nstudy: {name: x}\nhydra: {sweeper: {params: {quantise: a}}}\n",
            "mine.yaml: quantise: no such",
        ),
        (
            "# @package _global_\nquantize: {per_channel: perhaps}\nstudy: {name: x}\n",
            "conf/study/mine.yaml: Value 'perhaps'",
        ),
    ],
)
def test_mistake_in_a_study_file_names_the_file(tmp_path, text, message):
    import shutil

    shutil.copytree(CONF, tmp_path / "conf")
    (tmp_path / "conf" / "study" / "mine.yaml").write_text(text)
    with pytest.raises(StropError) as caught:
        make_sweep(["study=mine"], Composer(tmp_path / "conf"))
    assert message in str(caught.value)


def hydra_compose(overrides):
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    register_schema()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        return OmegaConf.to_container(compose("config", overrides=overrides), resolve=True)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_composition_by_parts_equals_hydras(composer, data):
    """The plan composes each group once; for any overrides of the real conf/ the result is Hydra's own."""
    study = data.draw(st.sampled_from(["quickstart", "smoke", "vision"]))
    words = [f"study={study}"]
    for group in data.draw(st.sets(st.sampled_from(["prune", "quantize", "compile", "engine", "benchmark", "device"]))):
        words.append(f"{group}={data.draw(st.sampled_from(composer.groups[group]))}")
    values = {"quantize.per_channel": "false", "benchmark.batch_size": "3", "device.threads": "2", "on_failure": "stop"}
    words += [f"{key}={values[key]}" for key in data.draw(st.sets(st.sampled_from(sorted(values))))]
    assert composer.compose(words).values == hydra_compose(words)
    assert composer._separable
