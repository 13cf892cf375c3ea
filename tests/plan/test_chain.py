"""Chains follow the formats; what cannot work is said."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.options import OPTIONS
from strop.plan.chain import NoChain, format_of, resolve

NONE = {"model": "factory", "prune": "none", "export": "auto", "quantize": "none", "compile": "none", "engine": "none"}


def names(**methods):
    return [f"{o.stage}={o.name}" for o in resolve({**NONE, **methods}, lambda _: None)]


def test_export_is_put_in_where_the_next_option_needs_it():
    assert names() == ["model=factory"]
    assert names(engine="openvino") == ["model=factory", "export=onnx", "engine=openvino"]
    assert names(prune="magnitude", quantize="ort_int8_static", engine="onnxruntime") == [
        "model=factory",
        "prune=magnitude",
        "export=onnx",
        "quantize=ort_int8_static",
        "engine=onnxruntime",
    ]
    assert names(quantize="torchao_int8_dynamic", compile="inductor")[1:] == [
        "quantize=torchao_int8_dynamic",
        "compile=inductor",
    ]
    assert names(model="onnx", quantize="nncf_int8", engine="openvino")[1:] == ["quantize=nncf_int8", "engine=openvino"]
    assert names(export="optimum", engine="onnxruntime")[1] == "export=optimum"


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        ({"compile": "torchscript", "engine": "onnxruntime"}, "takes onnx, but compile=torchscript gives torchscript"),
        ({"quantize": "ort_int8_dynamic"}, "which needs an engine; add engine=onnxruntime"),
        ({"quantize": "torchao_int8_dynamic", "engine": "openvino"}, "export=onnx cannot follow quantize=torchao"),
        ({"quantize": "nncf_int8", "engine": "onnxruntime"}, "but quantize=nncf_int8 gives openvino"),
        ({"export": "none", "engine": "onnxruntime"}, "engine=onnxruntime takes onnx, but model=factory gives torch"),
        ({"model": "onnx", "prune": "magnitude"}, "prune=magnitude takes torch, but model=onnx gives onnx"),
        (
            {"export": "onnx"},
            "export=onnx gives onnx, which needs an engine; add engine=onnxruntime or engine=openvino",
        ),
        ({"quantize": "nncf_int8"}, "gives openvino, which needs an engine; add engine=openvino"),
    ],
)
def test_what_does_not_fit_has_a_reason(methods, reason):
    with pytest.raises(NoChain) as caught:
        names(**methods)
    assert reason in str(caught.value)


def test_a_problem_of_the_machine_is_a_reason():
    with pytest.raises(NoChain, match="engine=openvino: not installed"):
        resolve({**NONE, "engine": "openvino"}, lambda o: "not installed" if o.name == "openvino" else None)


def options_of(stage):
    return st.sampled_from([name for of, name in sorted(OPTIONS) if of == stage] + ["none"])


@given(
    st.fixed_dictionaries(
        {
            "model": st.sampled_from(["transformers", "factory", "onnx"]),
            "prune": options_of("prune"),
            "export": st.sampled_from(["auto", "none", "onnx", "optimum"]),
            "quantize": options_of("quantize"),
            "compile": options_of("compile"),
            "engine": options_of("engine"),
        }
    )
)
def test_every_chain_fits_and_holds_what_was_chosen(methods):
    try:
        chain = resolve(methods, lambda _: None)
    except NoChain:
        return
    for earlier, later in itertools.pairwise(chain):
        assert format_of(chain[: chain.index(later)]) in later.accepts, (earlier, later)
    chosen = {(stage, name) for stage, name in methods.items() if name not in ("none", "auto")}
    assert chosen <= {(o.stage, o.name) for o in chain}
    assert len(chain) <= len(chosen) + 1
