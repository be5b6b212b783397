"""The public names are functions and classes, whatever has been imported before."""

import importlib
import pkgutil

import consilia


def test_every_public_name_is_there() -> None:
    assert set(consilia.__all__) <= set(dir(consilia))
    assert all(callable(getattr(consilia, name)) for name in consilia.__all__)


def test_no_public_name_is_a_package_too() -> None:
    # Importing consilia.x puts the module x in place of a function x.
    packages = {module.name for module in pkgutil.iter_modules(consilia.__path__)}
    assert packages.isdisjoint(consilia.__all__)
    importlib.import_module("consilia.report.page")
    assert all(callable(getattr(consilia, name)) for name in consilia.__all__)
