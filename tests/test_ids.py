"""Equal content has an equal id; code counts, comments do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop import ids

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_the_order_of_keys_does_not_matter(value):
    assert ids.digest(value) == ids.digest(dict(reversed(value.items())))
    assert len(ids.digest(value)) == 12


def test_what_is_no_number_has_no_id():
    with pytest.raises(ValueError, match="JSON compliant"):
        ids.digest({"a": float("nan")})


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "strop"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text('"""Doc."""\nfrom strop.b import f\n\ndef g():\n    """Doc."""\n    return f()\n')
    (folder / "b.py").write_text('BY_NAME = {"d": "strop.d"}\n\ndef f():\n    return 1\n')
    (folder / "d.py").write_text("def i():\n    return 1\n")
    (folder / "c.py").write_text("def h():\n    return 1\n")
    monkeypatch.setattr(ids, "PACKAGE", folder)

    def digest():
        ids.source_digest.cache_clear()
        return ids.source_digest("strop.a")

    yield folder, digest
    ids.source_digest.cache_clear()


@pytest.mark.parametrize(
    ("file", "text", "changes"),
    [
        (
            "a.py",
            '"""Reworded."""\nfrom strop.b import f  # why\n\n\ndef g():\n    """New."""\n    return f()\n',
            False,
        ),
        ("b.py", 'BY_NAME = {"d": "strop.d"}\n\ndef f():\n    return 2\n', True),
        ("d.py", "def i():\n    return 2\n", True),
        ("c.py", "def h():\n    return 2\n", False),
    ],
)
def test_a_modules_digest_is_of_its_code_and_of_what_it_imports(package, file, text, changes):
    folder, digest = package
    before = digest()
    (folder / file).write_text(text)
    assert (digest() != before) is changes
