"""Every example in the docstrings of the room runs, and everything public has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
import torch

from spectrope import spectral

MODULES = [
    importlib.import_module(f"{spectral.__name__}.{module.name}")
    for module in pkgutil.iter_modules(spectral.__path__)
]
PUBLIC = {name: getattr(spectral, name) for name in spectral.__all__}


def documented(module):
    """Functions and classes that the module defines, with their names."""
    return {
        name: one
        for name, one in vars(module).items()
        if getattr(one, "__module__", None) == module.__name__ and getattr(one, "__doc__", None)
    }


def examples():
    """Documented objects with examples, methods included."""
    for module in MODULES:
        for name, one in documented(module).items():
            members = vars(one).items() if inspect.isclass(one) else ()
            for path, each in ((name, one), *((f"{name}.{inner}", member) for inner, member in members)):
                if ">>>" in (getattr(each, "__doc__", None) or ""):
                    yield pytest.param(module, inspect.getdoc(each), id=path)


@pytest.mark.parametrize(("module", "text"), list(examples()))
def test_examples_run(module, text):
    torch.manual_seed(0)
    test = doctest.DocTestParser().get_doctest(text, vars(module) | PUBLIC, module.__name__, None, 0)
    told = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    assert not told, "".join(told)


def test_every_public_function_has_an_example():
    assert spectral.__all__ == sorted(spectral.__all__)
    functions = {name for name, one in PUBLIC.items() if not inspect.isclass(one)}
    assert not [name for name in functions if ">>>" not in PUBLIC[name].__doc__]
