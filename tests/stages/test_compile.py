"""Compiled forms give the module's own outputs at other batch sizes and lengths, and open without the source."""

import pytest

from strop.runtimes import open_session

FILES = {"torchscript": "model.ts", "inductor": "compile.json", "aot_inductor": "model.pt2"}


@pytest.mark.parametrize("option", sorted(FILES))
def test_compiled_module_is_right_and_says_its_precision(text_bench, option):
    made = text_bench.step("compile", option, text_bench.torch, text_bench.torch, min_cosine=0.9999)
    assert made.status == "ok", made.error
    assert FILES[option] in {file.path for file in made.files}
    assert open_session(text_bench.artifact(made), threads=1).facts["precision"] == "f32"


def test_quantized_module_compiles(text_bench):
    int8 = text_bench.step("quantize", "torchao_int8_dynamic", text_bench.torch, text_bench.torch)
    made = text_bench.step("compile", "inductor", int8, text_bench.torch, min_cosine=0.95)
    assert made.status == "ok", made.error
    assert made.details["precision"] == "int8"
