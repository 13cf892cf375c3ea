"""The registry, the option files and the functions say the same."""

import dataclasses
import importlib
import inspect
from pathlib import Path

import pytest
import yaml

from strop.artifact import FORMATS
from strop.errors import StropError
from strop.options import OPTIONS, option, reads
from strop.settings import NOT_IN_IDS, STAGE_SETTINGS

CONF = Path(__file__).parents[1] / "conf"


@pytest.mark.parametrize(("stage", "name"), sorted(OPTIONS))
def test_option_has_a_function_that_takes_settings_of_its_stage(stage, name):
    function = getattr(importlib.import_module(option(stage, name).module), name)
    keywords = tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY)
    fields = {field.name for field in dataclasses.fields(STAGE_SETTINGS[stage])}
    assert reads(stage, name) == keywords
    assert set(keywords) <= fields - NOT_IN_IDS


@pytest.mark.parametrize(("stage", "name"), sorted(OPTIONS))
def test_formats_are_known(stage, name):
    item = option(stage, name)
    assert set(item.accepts) <= set(FORMATS)
    assert item.returns is None or item.returns in FORMATS


@pytest.mark.parametrize("path", sorted(CONF.glob("*/*.yaml")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_option_file_opens_with_what_it_is_and_names_a_registered_method(path):
    text = path.read_text()
    assert text.startswith("# ")
    stage, values = path.parent.name, yaml.safe_load(text)
    assert "_target_" not in text
    if stage in STAGE_SETTINGS and values["method"] not in ("none", "auto"):
        assert (stage, values["method"]) in OPTIONS


def test_every_option_has_a_file_and_every_setting_is_read():
    methods = {(p.parent.name, yaml.safe_load(p.read_text()).get("method")) for p in CONF.glob("*/*.yaml")}
    assert set(OPTIONS) <= methods
    for stage, cls in STAGE_SETTINGS.items():
        read = {name for of, option_name in OPTIONS if of == stage for name in reads(of, option_name)}
        fields = {field.name for field in dataclasses.fields(cls)} - NOT_IN_IDS - {"min_cosine"}
        assert fields == read, f"{stage}: settings that no option reads, or the reverse"


def test_unknown_method_names_the_nearest():
    with pytest.raises(StropError, match="did you mean 'ort_int8_static'"):
        option("quantize", "ort_int8_statik")
