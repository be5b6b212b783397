"""House rules that can be read off the source."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import consilia

SOURCE = Path(consilia.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in FILES]
LONGEST = 300
# (file, what it checks) -> why the check may vanish under `python -O`. Nothing that a caller, a file or a peer can cause.
_TYPES = "tells the type checker what the function's own check of its arguments, which raises, has made sure of"
ASSERTS_ALLOWED = {
    ("data/partition.py", "count is not None"): _TYPES,
    ("data/partition.py", "alpha is not None"): _TYPES,
    ("data/partition.py", "table.sites is not None"): _TYPES,
}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def test_something_is_looked_at() -> None:
    assert len(FILES) > 50


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_check_vanishes_under_python_o(path: Path) -> None:
    """`python -O` drops assert statements and `if __debug__`: none may stand between patients and a peer."""
    name = str(path.relative_to(SOURCE))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Assert):
            assert (name, ast.unparse(node.test)) in ASSERTS_ALLOWED, f"{name}:{node.lineno}"
        assert not (isinstance(node, ast.Name) and node.id == "__debug__"), f"{name}:{node.lineno}"


# What turns bytes of a file or a peer into code.
EXECUTES = {
    "pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "torch.load", "torch.save", "torch.hub",
    "numpy.load", "np.load", "yaml", "eval", "exec", "compile",
}  # fmt: skip
# np.load of a data file, with allow_pickle=False, which refuses objects: `data` says so in its own tests.
EXECUTES_ALLOWED = {("data/sources/npz.py", "np.load"): "allow_pickle=False"}


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_unpickles_or_runs_what_it_reads(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    for node in ast.walk(tree(path)):
        for word in words(node):
            if word not in EXECUTES:
                continue
            condition = EXECUTES_ALLOWED.get((name, word))
            assert condition is not None, f"{name}:{getattr(node, 'lineno', 0)} uses {word}"
            assert condition in ast.unparse(node).replace(" ", ""), f"{name}: {word} without {condition}"


def words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield (node.module or "").split(".")[0]
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call):
        yield ast.unparse(node.func)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_file_stays_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_public_name_says_what_it_does(path: Path) -> None:
    module = tree(path)
    assert ast.get_docstring(module), "the module"
    for node in public(module):
        assert ast.get_docstring(node), f"{node.name} in line {node.lineno}"


Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(scope: ast.Module | ast.ClassDef) -> Iterator[Documented]:
    for node in scope.body:
        if isinstance(node, Documented) and not node.name.startswith("_") and not overload(node):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def overload(node: Documented) -> bool:
    return any("overload" in ast.unparse(decorator) for decorator in node.decorator_list)


MODULES = [
    info.name for info in pkgutil.walk_packages([str(SOURCE)], "consilia.") if not info.name.endswith("__main__")
]


# What only loads beside a package that has an environment of its own, where its own tests load it.
ELSEWHERE = {"consilia.federation.fleet.site": "nvflare", "consilia.federation.fleet.controller": "nvflare"}


HERE = [name for name in MODULES if name not in ELSEWHERE or find_spec(ELSEWHERE[name]) is not None]


@pytest.mark.parametrize("name", ["consilia", *HERE])
def test_what_a_module_exports_exists(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert len(set(exported)) == len(exported)
    for item in exported:
        assert getattr(module, item) is not None


def test_the_package_exports_what_the_api_does() -> None:
    from consilia import api

    assert set(consilia.__all__) == set(api.__all__)
    for item in consilia.__all__:
        assert getattr(consilia, item) is getattr(api, item)
        assert inspect.getdoc(getattr(consilia, item))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = consilia.nothing_of_the_kind
