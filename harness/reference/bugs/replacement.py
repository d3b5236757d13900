"""Puts a patch in force in this process, and takes it back: functions get other code, and keep their identity.

Who holds a function that is patched (a table of a state machine, a bound method, another module that imported it) holds
the patched one, because the function's code object is what is replaced. So one mechanism serves every process of a
trial: the simulator, the harness, the driver on Spark and its executors' workers each put the same patch in force
while the trial runs there.

What can be changed: the bodies and defaults of functions and methods (with ``super()``, nested functions, properties,
decorated ones), constants of modules and plain classes; what can be added: functions, methods, classes, constants and
imports; methods can be taken away. The fields of data classes and structs, bases and decorators cannot: objects with
the old shape may exist. A patch that needs this is refused.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import dis
import functools
import importlib
import inspect
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
    patched_sources,
    product_source,
)
from barrier_tck.harness.support.errors import UsageProblem

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_ABSENT = object()
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
    if not wanted:
        yield
        return
    if _now.depth and _now.changes != wanted:
        raise RuntimeError(f"another patch is in force already: {[one.place for one in _now.changes]}")
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
            _require_names(changes)
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


@functools.lru_cache(maxsize=256)
def _require_names(changes: tuple[Change, ...]) -> None:
    """Raise PatchProblem for a global name that patched code uses and nobody defines.

    When it ran, the NameError would look like a failure of the subtask: a bug, but not the one that was planted.
    """
    for file in dict.fromkeys(change.file for change in changes):
        module, shown = _module(file), _shown(file)
        known = vars(module).keys() | vars(builtins).keys()
        for code in _codes(module, shown):
            for instruction in dis.get_instructions(code):
                if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval not in known:
                    raise PatchProblem(
                        f"{file}::{code.co_qualname}: {instruction.argval!r} is not known there; import or define it "
                        "in a change of its own"
                    )


def _codes(module: types.ModuleType, shown: str) -> Iterator[types.CodeType]:
    """Yield the code of every function of a module, at any depth, that a patch made."""
    waiting: list[Any] = [*vars(module).values()]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        match found:
            case type() if found.__module__ == module.__name__:
                waiting += vars(found).values()
            case property():
                waiting += [found.fget, found.fset, found.fdel]
            case functools.cached_property():
                waiting.append(found.func)
            case staticmethod() | classmethod():
                waiting.append(found.__func__)
            case types.FunctionType():
                waiting += [found.__code__, getattr(found, "__wrapped__", None)]
            case types.CodeType():
                if found.co_filename == shown:
                    yield found
                waiting += found.co_consts
            case _:
                waiting.append(getattr(found, "__wrapped__", None))


def _module(file: str) -> types.ModuleType:
    return importlib.import_module(f"barrier_tck.{ROOT}.{file.removesuffix('.py').replace('/', '.')}")


def _shown(file: str) -> str:
    """Return the name that tracebacks give a patched file."""
    return f"<{file} with a patch>"


@functools.lru_cache(maxsize=256)
def _steps(changes: tuple[Change, ...]) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    for file, text in patched_sources(changes).items():
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise PatchProblem(
                f"with this patch {file} is no Python: line {error.lineno}, {error.msg}"
            ) from error
        shown = _shown(file)
        linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
        scope = _Scope(file, shown, _module(file))
        steps += scope.differences(ast.parse(product_source(file)).body, tree.body)
    if not steps:
        raise PatchProblem("the patch changes nothing")
    return tuple(steps)


@dataclass
class _Scope:
    """A module or a class of the product, and what a patch changes in it."""

    file: str
    shown: str
    module: types.ModuleType
    owner: type | None = None
    steps: list[_Step] = field(default_factory=list)

    @property
    def _holder(self) -> Any:
        return self.owner if self.owner is not None else self.module

    def _named(self, name: str) -> str:
        within = f"{self.owner.__qualname__}." if self.owner is not None else ""
        return f"{self.file}::{within}{name}"

    def differences(self, before: Sequence[ast.stmt], after: Sequence[ast.stmt]) -> list[_Step]:
        """Return a step for each statement that differs."""
        old, new = _by_key(before), _by_key(after)
        # What is added comes first, so that defaults and constants may use it.
        for key in sorted(new.keys() - old.keys(), key=list(new).index):
            self._add(new[key])
        for key, node in new.items():
            if key in old and ast.dump(old[key]) != ast.dump(node):
                self._change(old[key], node)
        for key in sorted(old.keys() - new.keys(), key=list(old).index):
            self._remove(old[key])
        return self.steps

    def _add(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Import() | ast.ImportFrom() if self.owner is None:
                self.steps.append(lambda: self._import(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                name = node.name
                self.steps.append(lambda: _set(self._holder, name, self._built(node)))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                self._assign(name, node)
            case _:
                raise PatchProblem(
                    f"{self._named('')} line {node.lineno}: this cannot be added while a trial runs"
                )

    def _change(self, old: ast.stmt, new: ast.stmt) -> None:
        match old, new:
            case (ast.ClassDef(), ast.ClassDef()):
                self._require_same(old, new, ("bases", "keywords", "decorator_list"))
                owner = vars(self._holder)[old.name]
                inner = _Scope(self.file, self.shown, self.module, owner)
                self.steps += inner.differences(old.body, new.body)
            case (ast.FunctionDef() as before, ast.FunctionDef() as after) | (
                ast.AsyncFunctionDef() as before,
                ast.AsyncFunctionDef() as after,
            ):
                self._require_same(before, after, ("decorator_list",))
                function = self._function(before)
                built = self._code_for(function, after)
                self.steps.append(lambda: _recode(function, built))
            case _, (ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name))):
                self._assign(name, new)
            case _:
                raise PatchProblem(
                    f"{self._named('')} line {new.lineno}: this cannot be changed while a trial runs"
                )

    def _remove(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() if self.owner is not None:
                self.steps.append(lambda: _delete(self._holder, node.name))
            case _:
                raise PatchProblem(
                    f"{self._named(getattr(node, 'name', ''))} cannot be taken away while a trial runs"
                )

    def _require_same(self, old: ast.stmt, new: ast.stmt, fields: Sequence[str]) -> None:
        for name in fields:
            first, second = (
                [ast.dump(node) for node in getattr(definition, name)] for definition in (old, new)
            )
            if first != second:
                named = self._named(getattr(old, "name", ""))
                raise PatchProblem(f"{named}: its {name} cannot be changed while a trial runs")

    def _assign(self, name: str, node: ast.Assign | ast.AnnAssign) -> None:
        if self.owner is not None and _has_fields(self.owner):
            raise PatchProblem(
                f"{self._named(name)}: the fields of a data class, a struct or an enum cannot be changed while a "
                "trial runs; change who uses them"
            )
        if node.value is None:
            return
        code = compile(
            ast.fix_missing_locations(ast.Expression(copy.deepcopy(node.value))), self.shown, "eval"
        )

        def assign() -> Callable[[], None]:
            # A patch is code, and runs as such: only one that the command line names, or that --trust allows.
            value = eval(code, vars(self.module))
            old = vars(self._holder).get(name, _ABSENT)
            holders = [self._holder]
            if self.owner is None and old is not _ABSENT:
                # Other modules hold constants that they imported under the same name; their own ones stay.
                holders += [
                    module
                    for module_name, module in list(sys.modules.items())
                    if module_name.startswith("barrier_tck.")
                    and module is not self.module
                    and vars(module).get(name, _ABSENT) is old
                    and _imports(module, name)
                ]
            undo = ExitStack()
            for holder in holders:
                undo.callback(_set(holder, name, value))
            return undo.close

        self.steps.append(assign)

    def _import(self, node: ast.Import | ast.ImportFrom) -> Callable[[], None]:
        before = dict(vars(self.module))
        exec(compile(ast.Module([node], []), self.shown, "exec"), vars(self.module))
        bound = [name for name, value in vars(self.module).items() if before.get(name, _ABSENT) is not value]

        def undo() -> None:
            for name in bound:
                if name in before:
                    setattr(self.module, name, before[name])
                else:
                    delattr(self.module, name)

        return undo

    def _function(self, node: _Function) -> types.FunctionType:
        """Return the function object behind a definition, below its decorators."""
        found = vars(self._holder)[node.name]
        accessor = next(
            (decorator.attr for decorator in node.decorator_list if isinstance(decorator, ast.Attribute)),
            "getter",
        )
        if isinstance(found, property):
            found = {"getter": found.fget, "setter": found.fset, "deleter": found.fdel}[accessor]
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

    def _built(self, node: _Function | ast.ClassDef) -> Any:
        """Return what a definition makes, with its decorators, in the place where it stands."""
        if self.owner is not None and isinstance(node, ast.ClassDef):
            raise PatchProblem(f"{self._named(node.name)}: add a class to the module, not to a class")
        built = self._made(copy.deepcopy(node))
        if isinstance(built, (types.FunctionType, type)):
            built.__module__ = self.module.__name__
        return built

    def _made(self, node: _Function | ast.ClassDef) -> Any:
        """Execute a definition as if it stood in the module or the class, and return what it defines."""
        factory = ast.FunctionDef(
            name="factory",
            args=ast.arguments(
                posonlyargs=[],
                args=[ast.arg("__class__")] if self.owner is not None else [],
                kwonlyargs=[],
                kw_defaults=[],
                defaults=[],
            ),
            body=[node, ast.Return(ast.Name(node.name, ast.Load()))],
            decorator_list=[],
        )
        _Private(self, node.name).visit(node)
        tree = ast.fix_missing_locations(ast.Module([factory], []))
        scratch: dict[str, Any] = {}
        flags = __future__.annotations.compiler_flag
        code = compile(tree, self.shown, "exec", flags=flags, dont_inherit=True)
        exec(code, vars(self.module), scratch)
        made = scratch["factory"](self.owner) if self.owner is not None else scratch["factory"]()
        _name(made, node.name, self.owner, self.module)
        return made

    def _code_for(self, function: types.FunctionType, node: _Function) -> Callable[[], types.FunctionType]:
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
        elif self.owner is not None:
            _ExplicitSuper(self.owner, plain).visit(plain)

        def make() -> types.FunctionType:
            made = self._made(copy.deepcopy(plain))
            assert isinstance(made, types.FunctionType)
            return made

        return make


class _ExplicitSuper(ast.NodeTransformer):
    """Writes ``super()`` out, where the function that is replaced has no reference to its class."""

    def __init__(self, owner: type, function: _Function) -> None:
        self._owner = owner
        arguments = [*function.args.posonlyargs, *function.args.args]
        self._first = arguments[0].arg if arguments else ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            owner: ast.expr = ast.Name(self._owner.__qualname__.split(".")[0], ast.Load())
            for name in self._owner.__qualname__.split(".")[1:]:
                owner = ast.Attribute(owner, name, ast.Load())
            # Not the name ``super``, which alone makes the compiler refer to the class.
            builtin = ast.Attribute(
                ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("builtins")], []),
                "super",
                ast.Load(),
            )
            return ast.Call(builtin, [owner, ast.Name(self._first, ast.Load())], [])
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "__class__":
            return ast.Name(self._owner.__name__, node.ctx)
        return node


class _Private(ast.NodeVisitor):
    """Refuses names that the compiler would change within a class (``__name``)."""

    def __init__(self, scope: _Scope, name: str) -> None:
        self._scope = scope
        self._name = name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._scope.owner is not None and node.attr.startswith("__") and not node.attr.endswith("__"):
            raise PatchProblem(f"{self._scope.file}::{self._name}: {node.attr} begins with two underscores")
        self.generic_visit(node)


@functools.lru_cache(maxsize=1024)
def _imports(module: types.ModuleType, name: str) -> bool:
    """Return whether a module imports this name from another one."""
    return any(
        isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
    )


def _by_key(body: Sequence[ast.stmt]) -> Mapping[str, ast.stmt]:
    """Return the statements by what they define; equal statements have equal keys wherever they stand."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                accessor = "".join(
                    f".{decorator.attr}"
                    for decorator in node.decorator_list
                    if isinstance(decorator, ast.Attribute)
                )
                key = f"def {node.name}{accessor}"
            case ast.ClassDef():
                key = f"def {node.name}"
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                key = f"{name} ="
            case _:
                key = ast.dump(node)
        while key in found:
            key += "'"
        found[key] = node
    return found


def _has_fields(owner: type) -> bool:
    """Return whether what is assigned in a class body becomes part of its instances' shape."""
    return any(hasattr(owner, name) for name in ("__dataclass_fields__", "__struct_fields__", "__members__"))


def _name(made: Any, name: str, owner: type | None, module: types.ModuleType) -> None:
    """Give what a factory made the names that it would have where it stands."""
    qualified = f"{owner.__qualname__}.{name}" if owner is not None else name
    for entry in (made, getattr(made, "fget", None), getattr(made, "__func__", None)):
        if isinstance(entry, types.FunctionType):
            entry.__qualname__ = qualified
            entry.__code__ = entry.__code__.replace(co_qualname=qualified)
        elif isinstance(entry, type):
            entry.__qualname__ = qualified
            entry.__module__ = module.__name__


def _set(holder: Any, name: str, value: Any) -> Callable[[], None]:
    old = vars(holder).get(name, _ABSENT)
    setattr(holder, name, value)
    return lambda: delattr(holder, name) if old is _ABSENT else setattr(holder, name, old)


def _delete(holder: Any, name: str) -> Callable[[], None]:
    old = vars(holder)[name]
    delattr(holder, name)
    return lambda: setattr(holder, name, old)


def _recode(function: types.FunctionType, make: Callable[[], types.FunctionType]) -> Callable[[], None]:
    """Give a function the code and the defaults of another one."""
    made = make()
    kept = function.__code__, function.__defaults__, function.__kwdefaults__

    def put(code: types.CodeType, defaults: Any, keyword_defaults: Any) -> None:
        function.__code__, function.__defaults__ = code, defaults
        function.__kwdefaults__ = keyword_defaults

    put(made.__code__, made.__defaults__, made.__kwdefaults__)
    return lambda: put(*kept)
