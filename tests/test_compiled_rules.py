"""What compiled code asks of classes, and no compiler says: found in the source (docs/compiled-build.md)."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import pytest

from tests.sources import ROOT, module_of, sources, statements

LISTED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["leveret"]["compiled"]


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def classes(module: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in statements(module.body) if isinstance(node, ast.ClassDef))


def is_open(found: ast.ClassDef) -> bool:
    """Whether plain classes may be subclasses of it."""
    return any(
        isinstance(each, ast.Call)
        and any(word.arg == "allow_interpreted_subclasses" for word in each.keywords)
        for each in found.decorator_list
    )


def is_plain(found: ast.ClassDef) -> bool:
    """Whether it is a class of Python's in a compiled module."""
    return any("native_class=False" in ast.unparse(each) for each in found.decorator_list)


COMPILED = {(module_of(name), found.name): found for name in LISTED for found in classes(tree_of(name))}


def plain_files() -> list[str]:
    names = {path.relative_to(ROOT).as_posix() for path in sources() if path.suffix == ".py"}
    return sorted(names - set(LISTED))


def bases(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Of each class: its name, and where each of its bases was imported from, and under which name there."""
    imported = {}
    for node in statements(module.body):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                imported[alias.asname or alias.name] = (node.module, alias.name)
    for found in classes(module):
        for base in found.bases:
            if isinstance(base, ast.Name) and base.id in imported:
                yield (found.name, *imported[base.id])
            elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
                package, name = imported.get(base.value.id, ("", ""))
                yield found.name, f"{package}.{name}", base.attr


@cache  # a thousand files, which two tests look at
def plain_classes() -> list[tuple[str, list[tuple[str, str, str]], list[str]]]:
    """Return each plain file with the bases of its classes, and the names of those that have slots."""
    found = []
    for name in plain_files():
        text = (ROOT / name).read_text()
        if "class " not in text:  # to look through a tree takes far longer
            continue
        tree = ast.parse(text)
        found.append((name, list(bases(tree)), [each.name for each in classes(tree) if has_slots(each)]))
    return found


def test_plain_classes_stand_under_compiled_ones_that_say_so():
    """Anything else is refused when the first object is made."""
    children = {
        f"{name}: {child} of {module}.{base}": (module, base)
        for name, under, _ in plain_classes()
        for child, module, base in under
        if (module, base) in COMPILED
    }
    assert {("leveret.exchanges.exchange_type", "ExchangeType"), ("leveret.clock", "Clock")} <= set(
        children.values()
    )
    assert [child for child, base in children.items() if not is_open(COMPILED[base])] == []


def has_slots(found: ast.ClassDef) -> bool:
    """Whether its objects have places for attributes, besides those of its bases."""
    return any(
        isinstance(line, ast.Assign)
        and ast.unparse(line.targets[0]) == "__slots__"
        and ast.unparse(line.value) != "()"
        for line in found.body
    )


def test_compiled_classes_stand_under_no_plain_ones_with_slots():
    """Else their module cannot be imported."""
    slotted = {
        (module_of(name), slotted_class)
        for name, _, with_slots in plain_classes()
        for slotted_class in with_slots
    }
    assert ("leveret.selectors.parser", "Selector") in slotted
    children = {
        f"{name}: {child} of {module}.{base}"
        for name in LISTED
        for child, module, base in bases(tree_of(name))
        if (module, base) in slotted and not is_plain(COMPILED[module_of(name), child])
    }
    assert children == set()


def test_enumerations_of_compiled_modules_build_on_enum_alone():
    """mypyc makes them classes of Enum, whatever else they build on: members of an IntEnum are no numbers there."""
    found = {
        (base, f"{name}: {child}")
        for name in LISTED
        for child, module, base in bases(tree_of(name))
        if module == "enum"
    }
    assert {base for base, _ in found} == {"Enum"}, found


@cache
def enumerations() -> frozenset[tuple[str, str]]:
    """Return the module and the name of each enumeration."""
    return frozenset(
        (module_of(path.relative_to(ROOT).as_posix()), found.name)
        for path in sources()
        if path.suffix == ".py" and "tests" not in path.parts and "Enum" in (text := path.read_text())
        for found in classes(ast.parse(text))
        if any(ast.unparse(base).endswith(("Enum", "Flag")) for base in found.bases)
    )


def test_functions_of_compiled_modules_look_no_member_of_an_enumeration_up():
    """Until Python 3.12 that takes 0.3 us, as it asks the class's class: a constant of the module names the member."""
    assert ("leveret.limits", "Overflow") in enumerations()
    looked_up = set()
    for name in LISTED:
        tree = tree_of(name)
        known = {found.name for found in classes(tree) if (module_of(name), found.name) in enumerations()}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                known |= {
                    alias.asname or alias.name
                    for alias in node.names
                    if (node.module, alias.name) in enumerations()
                }
        looked_up |= {
            f"{name}: {ast.unparse(node)}"
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in known
            and node.attr.isupper()
        }
    assert looked_up == set()


def test_what_a_node_calls_by_the_class_has_no_other_in_a_class_below():
    """Such a call (`SocketIO.read(line)`) goes to the method of that class, whatever the object is."""
    called = {
        (node.func.value.id, node.func.attr)
        for name in LISTED
        if name.startswith("server/")
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {found for _, found in COMPILED}
    }
    assert ("SocketIO", "read") in called
    below = {child: base for _, under, _ in plain_classes() for child, _, base in under}
    overridden = {
        f"{found.name}.{line.name}"
        for name in plain_files()
        if any(base in (text := (ROOT / name).read_text()) for base in {owner for owner, _ in called})
        for found in classes(ast.parse(text))
        for line in found.body
        if isinstance(line, ast.FunctionDef) and (below.get(found.name, ""), line.name) in called
    }
    assert overridden == set()


def test_no_code_asks_whether_an_exchange_type_is_one_of_the_compiled_ones():
    """They share what `isinstance` remembers of their contract: what is true of one is then said to be true of all."""
    types = {
        child
        for name in LISTED
        for child, module, base in bases(tree_of(name))
        if (module, base) == ("leveret.exchanges.exchange_type", "ExchangeType")
    }
    assert {"Headers", "Topic"} <= types
    asking = {
        f"{path.relative_to(ROOT)}: {ast.unparse(call)}"
        for path in sources()
        if path.suffix == ".py" and "tests" not in path.parts
        if any(name in (text := path.read_text()) for name in types)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("isinstance", "issubclass")
        and types & {each.id for each in ast.walk(call.args[1]) if isinstance(each, ast.Name)}
    }
    assert asking == set()


def assigned(contract: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """The names that get a value in its body, and whether they are said to be the class's."""
    for line in contract.body:
        if isinstance(line, ast.Assign):
            yield from ((ast.unparse(each), False) for each in line.targets)
        elif isinstance(line, ast.AnnAssign) and (line.value is not None or is_class_variable(line)):
            yield ast.unparse(line.target), is_class_variable(line)


def is_class_variable(line: ast.AnnAssign) -> bool:
    return ast.unparse(line.annotation).startswith(("ClassVar", "Final"))


FIXED = {"__slots__", "is_exchange"}  # no queue is an exchange, whatever its class
# Who stands under a class that says it need not say it again.
CLASS_VARIABLES = {name for found in COMPILED.values() for name, said in assigned(found) if said}


@pytest.mark.parametrize("name", LISTED)
def test_what_a_contract_says_in_its_body_is_a_class_variable(name: str):
    """What is not belongs to each object, and compiled code reads it there, past the body of a plain subclass."""
    contracts = [found for found in classes(tree_of(name)) if is_open(found)]
    said = {f"{found.name}.{word}": word for found in contracts for word, _ in assigned(found)}
    assert [line for line, word in said.items() if word not in CLASS_VARIABLES | FIXED] == []


@pytest.mark.parametrize("name", LISTED)
def test_no_contract_is_a_trait(name: str):
    """A plain class with a trait and another contract ends the process."""
    contracts = [found for found in classes(tree_of(name)) if is_open(found)]
    marks = {found.name: [ast.unparse(mark) for mark in found.decorator_list] for found in contracts}
    assert [contract for contract, marked in marks.items() if "trait" in marked] == []


@pytest.mark.parametrize("key", [key for key, found in COMPILED.items() if is_open(found)], ids=".".join)
def test_a_contract_can_be_subclassed_in_plain_python(key: tuple[str, str]):
    """Compiled or not: what a plain class overrides is what is called, and it has a place for attributes of its own."""
    module, name = key
    contract = getattr(import_module(module), name)
    methods = [
        word
        for word, value in vars(contract).items()
        if callable(value) and not word.startswith("_") and not isinstance(value, staticmethod | classmethod)
    ]
    body = {word: lambda self, *said, word=word: word for word in methods}
    body |= {word: None for word in getattr(contract, "__abstractmethods__", ()) if word not in body}
    plain = type(name, (contract,), {**body, "__init__": lambda self: None})
    made = plain()
    made.of_its_own = 1
    assert made.of_its_own == 1
    assert [getattr(made, word)() for word in methods] == methods
