"""Puts a planted bug in force in this process, and takes it back: functions get other code, and keep their identity.

Who holds a function that is changed (a table of a state machine, a bound method, another module that imported it) holds
the changed one, because the function's code object is what is replaced. So one mechanism serves every process of a
trial: the simulator, the harness, the driver on Spark and its executors' workers each put the same bug in force while
the trial runs there.

What can be changed: the bodies and defaults of functions and methods. What can be added: functions, methods and
variables of classes, under names that are free; classes and imports. Everything else is refused, because other code may
have used what is there already: constants, fields, bases, decorators, tables. Nothing can be taken away. A patch that
needs more goes into a copy of the package (``patched_copy``).
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import importlib
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from barrier_tck.harness.reference.bugs.patch import (
    ROOT,
    Change,
    PatchProblem,
    parsed,
    patched_sources,
    product_source,
    product_tree,
)
from barrier_tck.harness.support.errors import UsageProblem

_ABSENT = object()
_CANNOT = "cannot be changed while a trial runs; a copy of the package can have it: barrier-tck mutants --patch FILE"
_Cached = type(functools.lru_cache(lambda: None))


@dataclass
class _InForce:
    """What this process runs with now."""

    changes: tuple[Change, ...] = ()
    depth: int = 0
    undo: ExitStack = field(default_factory=ExitStack)


_now = _InForce()


@contextmanager
def in_force(changes: Sequence[Change]) -> Iterator[None]:
    """Run the body with a patch in force; raises PatchProblem if it does not fit, and RuntimeError within another one.

    The same patch may be put in force within itself, as when the harness runs a trial whose system does so too.
    """
    wanted = tuple(changes)
    if _now.depth and _now.changes != wanted:
        raise RuntimeError(f"another patch is in force already: {[change.place for change in _now.changes]}")
    if not wanted:
        yield
        return
    if _now.depth == 0:
        _now.undo = _do(wanted)
        _now.changes = wanted
    _now.depth += 1
    try:
        yield
    finally:
        _now.depth -= 1
        if _now.depth == 0:
            _now.changes = ()
            _now.undo.close()


def check(changes: Sequence[Change]) -> None:
    """Raise PatchProblem if a patch does not fit the reference implementation."""
    with in_force(changes):
        pass


_Step = Callable[[], Callable[[], None]]
"""Does something, and returns what undoes it."""


def _do(changes: tuple[Change, ...]) -> ExitStack:
    """Do all steps or, if one fails, none; return what undoes them.

    Whatever a patch's own definitions raise while they are made is a mistake in the patch: PatchProblem.
    """
    with ExitStack() as undo:
        undo.callback(_clear_caches)  # the last thing to be undone: what was computed with the patch goes
        try:
            for step in _steps(changes):
                undo.callback(step())
        except UsageProblem:
            raise
        except Exception as error:
            places = ", ".join(dict.fromkeys(change.place for change in changes))
            raise PatchProblem(
                f"{places}: the patch cannot be put in force: {type(error).__name__}: {error}"
            ) from error
        _clear_caches()
        return undo.pop_all()


def _clear_caches() -> None:
    """Empty every cache of functions of the runtime: it may hold results of what a patch changes, or changed."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(f"barrier_tck.{ROOT}."):
            continue
        for value in list(vars(module).values()):
            members = vars(value).values() if isinstance(value, type) else ()
            for entry in (value, *members):
                if isinstance(entry, _Cached):
                    entry.cache_clear()


def _module(file: str) -> types.ModuleType:
    return importlib.import_module(f"barrier_tck.{ROOT}.{file.removesuffix('.py').replace('/', '.')}")


def _shown(file: str) -> str:
    """Return the name that tracebacks give a patched file."""
    return f"<{file} with a patch>"


@functools.lru_cache(maxsize=256)
def _steps(changes: tuple[Change, ...]) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    for file, text in patched_sources(changes).items():
        tree = parsed(file, text)
        if file.endswith("__init__.py"):
            raise PatchProblem(f"{file} {_CANNOT}")
        shown = _shown(file)
        linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
        scope = _Scope(file, shown, _module(file), _Texts(product_source(file), text))
        steps += scope.differences(product_tree(file).body, tree.body)
    if not steps:
        raise PatchProblem("the patch changes nothing")
    return tuple(steps)


class _Texts:
    """The lines of a file before and after a patch."""

    def __init__(self, before: str, after: str) -> None:
        self._before = before.splitlines()
        self._after = after.splitlines()

    def differ(self, old: ast.stmt, new: ast.stmt) -> bool:
        """Return whether a statement means something else after the patch; equal lines are quickly compared."""
        return _lines(self._before, old) != _lines(self._after, new) and ast.dump(old) != ast.dump(new)


def _lines(text: Sequence[str], node: ast.stmt) -> Sequence[str]:
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    return text[min([node.lineno, *decorators]) - 1 : node.end_lineno]


@dataclass
class _Scope:
    """A module or a class of the product, and what a patch changes in it."""

    file: str
    shown: str
    module: types.ModuleType
    texts: _Texts
    owner: type | None = None
    steps: list[_Step] = field(default_factory=list)

    @property
    def _holder(self) -> Any:
        return self.owner if self.owner is not None else self.module

    def _named(self, name: str) -> str:
        within = f"{self.owner.__qualname__}." if self.owner is not None else ""
        return f"{self.file}::{within}{name}"

    def _refused(self, node: ast.stmt) -> PatchProblem:
        return PatchProblem(f"{self._named(_defined(node))} (line {node.lineno}) {_CANNOT}")

    def differences(self, before: Sequence[ast.stmt], after: Sequence[ast.stmt]) -> list[_Step]:
        """Return a step for each statement that differs."""
        old, new = self._by_key(before), self._by_key(after)
        # What is added comes first, so that defaults may use it.
        for key in sorted(new.keys() - old.keys(), key=list(new).index):
            self._add(new[key])
        for key, node in new.items():
            if key in old and self.texts.differ(old[key], node):
                self._change(old[key], node)
        for key in sorted(old.keys() - new.keys(), key=list(old).index):
            if not isinstance(old[key], ast.ImportFrom):  # one that imports more takes its place
                raise self._refused(old[key])
        return self.steps

    def _by_key(self, body: Sequence[ast.stmt]) -> Mapping[str, ast.stmt]:
        """Return the statements by what they define; equal statements have equal keys wherever they stand."""
        found: dict[str, ast.stmt] = {}
        for node in body:
            if _is_text(node):
                continue
            key = _defined(node) or ast.dump(node)
            if isinstance(node, ast.FunctionDef):
                # A property and its setter have one name.
                key += "".join(
                    f".{decorator.attr}"
                    for decorator in node.decorator_list
                    if isinstance(decorator, ast.Attribute)
                )
            if key in found and ast.dump(found[key]) != ast.dump(node):
                raise PatchProblem(
                    f"{self._named(key)} is defined twice: change the definition that is there"
                )
            found[key] = node
        return found

    def _add(self, node: ast.stmt) -> None:
        name = _defined(node)
        match node:
            case ast.ImportFrom() if self.owner is None:
                self.steps.append(lambda: self._import(node))
                return
            case ast.ClassDef() if self.owner is None:
                pass
            case ast.FunctionDef(decorator_list=[]):
                pass
            case ast.Assign() | ast.AnnAssign() if (
                name and self.owner is not None and not _has_fields(self.owner)
            ):
                if node.value is None:
                    return
            case _:
                raise self._refused(node)
        if hasattr(self._holder, name) or (self.owner is not None and name.startswith("__")):
            # What is inherited may be in a table already, and what Python itself calls may have been called.
            raise self._refused(node)
        self.steps.append(lambda: _set(self._holder, name, self._made(node)))

    def _change(self, old: ast.stmt, new: ast.stmt) -> None:
        match old, new:
            case (ast.ClassDef(), ast.ClassDef()):
                self._require_same(old, new, ("bases", "keywords", "decorator_list"))
                owner = vars(self._holder)[old.name]
                inner = _Scope(self.file, self.shown, self.module, self.texts, owner)
                self.steps += inner.differences(old.body, new.body)
            case (ast.FunctionDef(), ast.FunctionDef()):
                self._require_same(old, new, ("decorator_list",))
                if any(isinstance(inner, ast.Global) for inner in ast.walk(new)):
                    raise PatchProblem(f"{self._named(new.name)}: what it leaves in a global name would stay")
                function = self._function(old)
                built = self._code_for(function, new)
                self.steps.append(lambda: _recode(function, built))
            case _:
                raise self._refused(new)

    def _require_same(self, old: ast.stmt, new: ast.stmt, fields: Sequence[str]) -> None:
        for name in fields:
            first, second = ([ast.dump(node) for node in getattr(side, name)] for side in (old, new))
            if first != second:
                raise PatchProblem(f"{self._named(_defined(old))}: its {name} {_CANNOT}")

    def _import(self, node: ast.ImportFrom) -> Callable[[], None]:
        names = [alias.asname or alias.name for alias in node.names]
        before = dict(vars(self.module))
        exec(compile(ast.Module([node], []), self.shown, "exec"), vars(self.module))
        added = [name for name in names if name not in before]
        changed = [name for name in names if name in before and vars(self.module)[name] is not before[name]]
        vars(self.module).update({name: before[name] for name in changed})

        def undo() -> None:
            for name in added:
                delattr(self.module, name)

        if changed:
            undo()
            raise self._refused(node)
        return undo

    def _function(self, node: ast.FunctionDef) -> types.FunctionType:
        """Return the function object behind a definition, below its decorators."""
        found = vars(self._holder)[node.name]
        if any(isinstance(decorator, ast.Attribute) for decorator in node.decorator_list):
            raise self._refused(node)  # the setter of a property, say: it has the name of its getter
        if isinstance(found, property):
            found = found.fget
        if isinstance(found, functools.cached_property):
            found = found.func
        while not isinstance(found, types.FunctionType) or hasattr(found, "__wrapped__"):
            inner = getattr(found, "__wrapped__", None) or getattr(found, "__func__", None)
            if inner is None:
                raise PatchProblem(
                    f"{self._named(node.name)} is wrapped by a decorator that hides its function"
                )
            found = inner
        return found

    def _made(self, node: ast.stmt) -> Any:
        """Execute a definition as if it stood in the module or the class, and return what it defines."""
        name = _defined(node)
        factory = ast.FunctionDef(
            name="factory",
            args=ast.arguments(
                posonlyargs=[],
                args=[ast.arg("__class__")] if self.owner is not None else [],
                kwonlyargs=[],
                kw_defaults=[],
                defaults=[],
            ),
            body=[copy.deepcopy(node), ast.Return(ast.Name(name, ast.Load()))],
            decorator_list=[],
        )
        _Private(self, name).visit(node)
        tree = ast.fix_missing_locations(ast.Module([factory], []))
        scratch: dict[str, Any] = {}
        flags = __future__.annotations.compiler_flag
        code = compile(tree, self.shown, "exec", flags=flags, dont_inherit=True)
        exec(code, vars(self.module), scratch)
        made = scratch["factory"](self.owner) if self.owner is not None else scratch["factory"]()
        _name(made, name, self.owner, self.module)
        return made

    def _code_for(
        self, function: types.FunctionType, node: ast.FunctionDef
    ) -> Callable[[], types.FunctionType]:
        """Return what makes a function whose code fits the closure of the one that is there."""
        plain = copy.deepcopy(node)
        plain.decorator_list = []
        free = function.__code__.co_freevars
        if free not in ((), ("__class__",)):
            raise PatchProblem(f"{self._named(node.name)} is made within another function; change that one")
        if free:
            # Code that refers to its class fits the closure, whether or not it still uses ``super()``.
            plain.body.insert(
                0, ast.If(ast.Constant(False), [ast.Expr(ast.Name("__class__", ast.Load()))], [])
            )
        elif any(
            isinstance(inner, ast.Name) and inner.id in ("super", "__class__") for inner in ast.walk(plain)
        ):
            raise PatchProblem(
                f"{self._named(node.name)}: super() {_CANNOT} where the product does not use it"
            )

        def make() -> types.FunctionType:
            made = self._made(plain)
            assert isinstance(made, types.FunctionType)
            return made

        return make


class _Private(ast.NodeVisitor):
    """Refuses names that the compiler would change within a class (``__name``)."""

    def __init__(self, scope: _Scope, name: str) -> None:
        self._scope = scope
        self._name = name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._scope.owner is not None and node.attr.startswith("__") and not node.attr.endswith("__"):
            raise PatchProblem(f"{self._scope.file}::{self._name}: {node.attr} begins with two underscores")
        self.generic_visit(node)


def _defined(node: ast.stmt) -> str:
    """Return the name that a statement defines; empty if it is not one name."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _is_text(node: ast.stmt) -> bool:
    """Return whether it is a docstring, or the text below a name."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _has_fields(owner: type) -> bool:
    """Return whether what is assigned in a class body becomes part of its instances' shape."""
    shapes = ("__dataclass_fields__", "__struct_fields__", "__members__", "_fields")
    return any(hasattr(owner, name) for name in shapes)


def _name(made: Any, name: str, owner: type | None, module: types.ModuleType) -> None:
    """Give what a factory made the names that it would have where it stands."""
    qualified = f"{owner.__qualname__}.{name}" if owner is not None else name
    for part in (made, getattr(made, "fget", None), getattr(made, "__func__", None)):
        if isinstance(part, types.FunctionType):
            part.__qualname__ = qualified
            part.__code__ = part.__code__.replace(co_qualname=qualified)
        elif isinstance(part, type):
            part.__qualname__ = qualified
            part.__module__ = module.__name__


def _set(holder: Any, name: str, value: Any) -> Callable[[], None]:
    old = vars(holder).get(name, _ABSENT)
    setattr(holder, name, value)
    return lambda: delattr(holder, name) if old is _ABSENT else setattr(holder, name, old)


def _recode(function: types.FunctionType, make: Callable[[], types.FunctionType]) -> Callable[[], None]:
    """Give a function the code and the defaults of another one."""
    made = make()
    kept = function.__code__, function.__defaults__, function.__kwdefaults__

    def put(code: types.CodeType, defaults: Any, keyword_defaults: Any) -> None:
        function.__code__, function.__defaults__ = code, defaults
        function.__kwdefaults__ = keyword_defaults

    put(made.__code__, made.__defaults__, made.__kwdefaults__)
    return lambda: put(*kept)
