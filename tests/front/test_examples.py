"""Every example in the docstrings of the front door runs, and every function of it has one."""

import doctest
import inspect
import types

import pytest

import spectrope as sp

FRONT = {name: one for name in sp.__all__ if inspect.isfunction(one := getattr(sp, name))}
OURS = {name: one for name, one in FRONT.items() if one.__module__.startswith("spectrope.front.")}
OURS["ablated"] = sp.ablated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples, so that a run is trained once."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.parametrize("name", OURS)
def test_examples_run(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = inspect.getdoc(OURS[name]) or ""
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert test.examples
    told = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    assert not told, "".join(told)


def test_the_functions_are_those_of_the_issue():
    assert set(OURS) == {
        *("compare", "train", "execute", "ablate", "ablated", "spectrum"),
        *("runs", "table", "report", "figure", "load_model"),
        *("load_encoding", "check_laws"),
    }


def test_a_version_is_told():
    assert isinstance(sp.__version__, str)
    assert isinstance(sp.lab, types.ModuleType)
