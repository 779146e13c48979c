"""Every public name has an example in its docstring, and it runs."""

import doctest
import inspect
import types

import pytest

import spectrope as sp

FRONT = {name: getattr(sp, name) for name in sp.__all__ if name != "__version__"}
DOCUMENTED = {name: one for name, one in FRONT.items() if not isinstance(one, types.ModuleType)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples, so that a run is trained once."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.sampled
@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_run(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = inspect.getdoc(DOCUMENTED[name]) or ""
    test = doctest.DocTestParser().get_doctest(text, {"sp": sp}, name, None, 0)
    assert test.examples
    told = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    assert not told, "".join(told)


def test_rooms_say_what_they_hold():
    for name in FRONT.keys() - DOCUMENTED.keys():
        assert inspect.getdoc(FRONT[name])


def test_the_functions_are_those_of_the_issue():
    assert set(FRONT) >= {
        *("compare", "train", "execute", "ablate", "ablated", "spectrum", "audit", "diff"),
        *("runs", "table", "report", "figure", "load_model"),
        *("load_encoding", "check_laws"),
    }


def test_a_version_is_told():
    assert isinstance(sp.__version__, str)
    assert isinstance(sp.lab, types.ModuleType)


def test_the_package_says_where_to_begin(folder, monkeypatch):
    monkeypatch.chdir(folder)
    test = doctest.DocTestParser().get_doctest(sp.__doc__ or "", {}, "spectrope", None, 0)
    told = []
    doctest.DocTestRunner().run(test, out=told.append)
    assert len(test.examples) == 3
    assert not told, "".join(told)
    for name in DOCUMENTED:
        if inspect.isfunction(DOCUMENTED[name]) and name not in ("unwatched", "register_attention"):
            assert f"`{name}" in sp.__doc__ or f"`with {name}" in sp.__doc__
