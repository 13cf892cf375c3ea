"""Values as people write them: one number in any spelling is one configuration, and a text is never a number."""

from pathlib import Path

import pytest

from strop.errors import StropError
from strop.plan.compose import Composer
from strop.plan.sweep import make_sweep

STUDY = ["study=smoke", "quantize=none", "engine=none"]


@pytest.fixture(scope="module")
def composer():
    return Composer(Path(__file__).parents[2] / "conf")


@pytest.mark.parametrize("spellings", [("1e-2", "1.0e-02", "0.01"), ("1e-5", "1.0e-05", "0.00001", "1E-5")])
def test_spellings_of_one_number_are_one_configuration(composer, row, spellings):
    values = [composer.compose(["study=smoke", f"benchmark.precision={s}"]).values["benchmark"] for s in spellings]
    row("values", f"benchmark.precision={','.join(spellings)}", "planned", "one configuration")
    assert all(found == values[0] for found in values)


TEXTS = ["007", "123_456", "12e5", "1E234", "1e-5", "1.0", "-3", "yes", "true", "nan", "0x10", "1:30", "a/b", "x y",
         "'it\\'s'", '"k=v"', "'größe'", "'12e5'"]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_texts_stay_as_they_were_written(composer, row, text):
    def read(word):
        [combination] = make_sweep([*STUDY, word], composer).combinations
        return composer.compose(list(combination)).values

    found = read(f"dataset.text_column={text}")["dataset"]["text_column"]
    row("values", f"dataset.text_column={text}", "planned", f"the text `{found}`")
    wanted = text[1:-1].replace("\\'", "'") if text[0] in "'\"" else text
    assert found == wanted
    assert read(f"quantize.op_types=[{text}, {text}]")["quantize"]["op_types"] == [wanted, wanted]


def test_a_sweep_over_texts_that_look_like_numbers(composer):
    combinations = make_sweep([*STUDY, "dataset.text_column=12e5,007,123_456"], composer).combinations
    found = [composer.compose(list(c)).values["dataset"]["text_column"] for c in combinations]
    assert found == ["12e5", "007", "123_456"]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("quantise=none", "quantise: no such setting; did you mean 'quantize'?"),
        (
            "batchsize=8",
            "batchsize: no such setting; did you mean 'evaluate.batch_size' or 'benchmark.batch_size' "
            "or 'profile.batch_size'?",
        ),
        ("dataset.text_column=k=v", "dataset.text_column=k=v: not in Hydra's grammar; put texts in quotes"),
        ("dataset.text_column=it's", "dataset.text_column=it's: not in Hydra's grammar; put texts in quotes"),
        ("dataset.text_column=größe", "dataset.text_column=größe: not in Hydra's grammar; put texts in quotes"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_mend(composer, row, word, line):
    with pytest.raises(StropError) as refused:
        make_sweep(["study=smoke", word], composer)
    row("values", word, "refused", line)
    assert str(refused.value).startswith(line)


def test_a_folder_with_braces_is_refused_with_the_mend(tmp_path, row):
    odd = tmp_path / "20%{x}"
    odd.mkdir()
    with pytest.raises(StropError) as refused:
        with_study(odd, "dataset: {features: 4}")
    row("values", "a project in a folder with braces", "refused", str(refused.value).rpartition(": ")[2])
    assert str(refused.value) == f"{odd}: Snakemake cannot work in a folder with '{{' in its name; rename it"


def with_study(folder, text):
    import shutil

    shutil.copytree(Path(__file__).parents[2] / "conf", folder / "conf")
    (folder / "conf" / "study" / "mine.yaml").write_text(f"# @package _global_\n{text}\nstudy: {{name: mine}}\n")
    return Composer(folder / "conf")


@pytest.mark.parametrize("value", ["'12e5'", "x1", '"yes"'])
def test_a_text_in_a_file_may_have_quotes(tmp_path, value):
    composed = with_study(tmp_path, f"dataset: {{text_column: {value}}}").compose(["study=mine"])
    assert composed.values["dataset"]["text_column"] == value.strip("'\"")


@pytest.mark.parametrize("value", ["12e5", "007", "yes", "1:30"])
def test_a_text_in_a_file_that_yaml_would_change_is_refused(tmp_path, row, value):
    composer = with_study(tmp_path, f"dataset: {{text_column: {value}}}")
    with pytest.raises(StropError) as refused:
        composer.compose(["study=mine"])
    row("values", f"in a study file: text_column: {value}", "refused", str(refused.value))
    assert str(refused.value) == (
        f"conf/study/mine.yaml: line 2: dataset.text_column is a text, and YAML reads {value} as a number or a truth; "
        "put it in quotes"
    )
