"""Checks by syntax that an edit of a generated kernel changes only its body, and not what its caller relies on."""

from __future__ import annotations

import ast
import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..errors import InductorBenchError
from .calls import find_heuristic, write_dotted_name
from .generated_text import parse
from .standalone_header import UnwritableKernelError
from .standalone_writer import is_own_harness, list_argument_types

KEEP = "keep that line as ORIGINAL has it"
LEAVE_OUT = "leave it out"

# Triton: functions under ``triton.jit``, constants, and the imports of the original.


_FREE_KEYWORDS = ("reduction_hint", "tile_hint", "min_elem_per_thread", "num_warps", "num_stages")
"""The arguments of Inductor's decorator that an edit may change; the others decide the grid, or say what is called."""

_MODULES = ("math", "triton", "triton.language", "triton.language.extra", "triton.language.extra.cuda")
"""The modules that an edit may import, in addition to the original's imports."""

_REACHING = {"exec", "eval", "open", "compile", "globals", "locals", "vars", "getattr", "setattr", "delattr", "input"}
_REACHING |= {"breakpoint", "__import__", "__builtins__"}


def strip_harness(source: str) -> str:
    """Returns a Triton kernel's source without Inductor's benchmark harness, and without imports that only the harness
    needs.

    Raises:
        InductorBenchError: the source does not parse.
    """
    tree = parse(source)
    own = [node for node in tree.body if is_own_harness(node)]
    if own and not _uses(tree, "torch", but=own):
        own += [node for node in tree.body if isinstance(node, ast.Import) and ast.unparse(node) == "import torch"]
    dropped = {number for node in own for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    kept = [line for number, line in enumerate(source.split("\n"), 1) if number not in dropped]
    return "\n".join(kept).strip("\n") + "\n"


def _uses(tree: ast.Module, name: str, but: Iterable[ast.stmt]) -> bool:
    nodes = (node for statement in tree.body if statement not in but for node in ast.walk(statement))
    return any(isinstance(node, ast.Name) and node.id == name for node in nodes)


def check_triton(source: str, original: str, required: int | None = None) -> None:
    """Checks that an edited Triton kernel may replace the original.

    Args:
        source: its text.
        original: the text of the original; for a kernel that replaces calls, the text with which its file was written.
        required: the least number of parameters of a kernel that replaces calls; ``None`` for another kernel.

    Raises:
        InductorBenchError: it may not; the error says what is wrong.
    """
    if required is None:
        _check_triton(parse(source), parse(original))
    else:
        _check_launched(parse(source), parse(original), required)


def _list_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    twice = [one for one, count in Counter(function.name for function in functions).items() if count > 1]
    if twice:
        raise InductorBenchError(f"two functions are named {twice[0]}", "leave one of them")
    return functions


def _check_triton(tree: ast.Module, original: ast.Module) -> None:
    known = _find_kernel(original, "")
    _list_functions(tree)
    kernel = _find_kernel(tree, known.name)
    if ast.unparse(kernel.args) != ast.unparse(known.args):
        raise InductorBenchError(
            f"{kernel.name} has another signature: ({ast.unparse(kernel.args)})",
            f"its caller passes ({ast.unparse(known.args)})",
        )
    _check_decorators(kernel, known)
    imports = {ast.unparse(node) for node in original.body if isinstance(node, ast.Import | ast.ImportFrom)}
    expressions = {ast.unparse(node) for node in original.body if isinstance(node, ast.Expr)}
    for node in tree.body:
        _check_statement(node, imports, expressions)
    _check_names(tree, original)


def _check_launched(tree: ast.Module, original: ast.Module, required: int) -> None:
    """Checks a kernel that replaces calls. It is the last function of the text with which its file was written."""
    known = _list_functions(original)[-1]
    kernel = next((each for each in _list_functions(tree) if each.name == known.name), None)
    if kernel is None:
        raise InductorBenchError(f"there is no function {known.name}", "keep the name of the kernel")
    _check_parameters(ast.unparse(kernel.args).split(", "), ast.unparse(known.args).split(", "), required)
    imports = {ast.unparse(node) for node in original.body if isinstance(node, ast.Import | ast.ImportFrom)}
    for node in tree.body:
        _check_statement(node, imports, set())
        if isinstance(node, ast.FunctionDef) and find_heuristic(node) is not None:
            raise InductorBenchError(f"{node.name} has a decorator of Inductor's", "put only @triton.jit above it")
    _check_names(tree, original)
    launch_constants(tree)


def _check_parameters(given: list[str], known: list[str], required: int) -> None:
    if given not in (known, known[:required]):
        less = f" or ({', '.join(known[:required])})" if required < len(known) else ""
        raise InductorBenchError(
            f"the kernel has another signature: ({', '.join(given)})", f"its caller passes ({', '.join(known)}){less}"
        )


def list_parameters(language: str, source: str, name: str) -> list[str]:
    """Returns the parameters of a kernel that replaces calls: of the Triton function ``name``; in C++ only their
    types."""
    if language == "cpp":
        return list(list_argument_types(remove_comments(source)))
    return [each.arg for node in _list_functions(parse(source)) if node.name == name for each in node.args.args]


GRID, WARPS, STAGES = "GRID", "NUM_WARPS", "NUM_STAGES"
"""The constants that say how a Triton kernel that replaces calls is launched."""

_LARGEST_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class LaunchConstants:
    """How a Triton kernel that replaces calls is launched."""

    grid: tuple[int, int, int]  # the number of programs in each direction
    warps: int  # of a program
    stages: int  # of its loops


def launch_constants(tree: ast.Module) -> LaunchConstants:
    """Returns how the kernel of a text is launched.

    Raises:
        InductorBenchError: a constant is missing or invalid; the message says which.
    """
    found: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError, TypeError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    grid, warps, stages = (found.get(name) for name in (GRID, WARPS, STAGES))
    if not isinstance(grid, tuple) or len(grid) != 3 or any(type(one) is not int for one in grid):
        raise InductorBenchError(f"{GRID} has to be three numbers of programs", f"write {GRID} = (64, 1, 1)")
    if any(not 0 < one <= most for one, most in zip(grid, _LARGEST_GRID, strict=True)):
        raise InductorBenchError(f"{GRID} = {grid} cannot be launched", f"the largest is {_LARGEST_GRID}")
    if not isinstance(warps, int) or warps not in (1, 2, 4, 8, 16, 32):
        raise InductorBenchError(f"{WARPS} is not 1, 2, 4, 8, 16 or 32", f"write {WARPS} = 4")
    if not isinstance(stages, int) or not 0 < stages <= 16:
        raise InductorBenchError(f"{STAGES} is no number from 1 to 16", f"write {STAGES} = 2")
    return LaunchConstants(grid, warps, stages)


def has_same_decorators(source: str, original: str) -> bool:
    """Whether an edited Triton kernel has the decorators of the original, to which its recorded config belongs.

    Raises:
        InductorBenchError: one of the sources does not parse, or holds no kernel.
    """
    kernels = [_find_kernel(parse(text), "") for text in (source, original)]
    mine, theirs = ([ast.unparse(each) for each in kernel.decorator_list] for kernel in kernels)
    return mine == theirs


_TILE = re.compile(r"^ +(BLOCK_\w+|GROUP_M|SPLIT_K) : tl\.constexpr = (\d+)$", re.MULTILINE)
_LAUNCH = re.compile(r"\b(num_stages|num_warps)=(\d+)")


def find_template_choice(source: str) -> tuple[str, ...]:
    """Returns what max-autotune chose for a Triton kernel from a template: ``BLOCK_M=128``, …, ``num_warps=4``.

    The words and their order are those of Inductor's description of a choice. Empty for other kernels.
    """
    _, _, text = source.partition("@triton_heuristics.template(")
    found = (*sorted(set(_TILE.findall(text))), *sorted(_LAUNCH.findall(text.partition("\ndef ")[0])))
    return tuple("=".join(each) for each in found)


def _find_kernel(tree: ast.Module, name: str) -> ast.FunctionDef:
    """Returns the function that Inductor launches."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and find_heuristic(node) is not None]
    if not functions:
        raise InductorBenchError(
            f"there is no kernel {name} under @triton_heuristics", "keep the decorator and the name of the kernel"
        )
    if len(functions) > 1:
        names = " and ".join(function.name for function in functions)
        raise InductorBenchError(f"{names} are both kernels under @triton_heuristics", "leave one of them")
    return functions[0]


def _list_other_decorators(function: ast.FunctionDef) -> list[str]:
    return [ast.unparse(each) for each in function.decorator_list if each is not find_heuristic(function)]


def _check_decorators(kernel: ast.FunctionDef, known: ast.FunctionDef) -> None:
    if kernel.name != known.name:
        raise InductorBenchError(f"the kernel is named {kernel.name}", f"its caller calls {known.name}: keep that name")
    mine, theirs = find_heuristic(kernel), find_heuristic(known)
    assert mine is not None and theirs is not None
    if _list_other_decorators(kernel) != _list_other_decorators(known) or ast.unparse(mine.func) != ast.unparse(
        theirs.func
    ):
        raise InductorBenchError("the decorators of the kernel were changed", KEEP)
    given, wanted = ({str(each.arg): ast.unparse(each.value) for each in one.keywords} for one in (mine, theirs))
    for name in {**wanted, **given}:
        if given.get(name) != wanted.get(name) and name not in _FREE_KEYWORDS:
            grid = name in ("size_hints", "inductor_meta")
            what = "it decides the grid of the launches" if grid else "the kernel's caller relies on it"
            raise InductorBenchError(f"{name} of the decorator was changed, but {what}", KEEP)
    if [ast.unparse(each) for each in mine.args] != [ast.unparse(each) for each in theirs.args]:
        raise InductorBenchError("the arguments of the kernel's decorator were changed", KEEP)


def _check_statement(node: ast.stmt, imports: set[str], expressions: set[str]) -> None:
    text = ast.unparse(node)
    if isinstance(node, ast.Import | ast.ImportFrom):
        _check_import(node, text, imports)
    elif isinstance(node, ast.FunctionDef):
        decorators = [ast.unparse(each) for each in node.decorator_list]
        if find_heuristic(node) is None and decorators != ["triton.jit"]:
            raise InductorBenchError(f"{node.name} is no function of Triton", "put @triton.jit above it")
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        if node.value is None or not _is_constant(node.value):
            raise InductorBenchError(
                f"line {node.lineno} of the kernel: {_shorten_text(text)} is no constant",
                "outside of functions only imports, constants and functions under @triton.jit may stand",
            )
    elif not (isinstance(node, ast.Expr) and (text in expressions or isinstance(node.value, ast.Constant))):
        raise InductorBenchError(
            f"line {node.lineno} of the kernel: {_shorten_text(text)} would be run when the file is loaded",
            "outside of functions only imports, constants and functions under @triton.jit may stand",
        )


def _check_import(node: ast.Import | ast.ImportFrom, text: str, imports: set[str]) -> None:
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    if text in imports or all(module in _MODULES for module in modules):
        return
    what = "an import of torch: a kernel cannot call it" if modules[0].partition(".")[0] == "torch" else "an import"
    raise InductorBenchError(
        f"line {node.lineno} of the kernel: {text} is {what}",
        "the original's imports, triton, triton.language and math are there for kernels",
    )


def _is_constant(value: ast.expr) -> bool:
    """Whether an expression is a literal, or ``tl.constexpr`` of one, or a type of Triton's."""
    if isinstance(value, ast.Call) and write_dotted_name(value.func) == ("tl", "constexpr") and len(value.args) == 1:
        value = value.args[0]
    if write_dotted_name(value)[:1] == ("tl",):
        return True
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError):
        return False
    return True


def _check_names(tree: ast.Module, original: ast.Module) -> None:
    """Refuses names that reach outside of a kernel when its file is loaded.

    In code that Triton compiles, Triton refuses them.
    """
    allowed = {node.id for node in ast.walk(original) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _REACHING - allowed:
            raise InductorBenchError(f"line {node.lineno} of the kernel: {node.id} is not for kernels", LEAVE_OUT)
        if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
            raise InductorBenchError(f"line {node.lineno} of the kernel: .{node.attr} is not for kernels", LEAVE_OUT)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for inner in ast.walk(function):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                raise InductorBenchError(f"{function.name} imports something", "import at the top, or not at all")


def _shorten_text(text: str) -> str:
    first = text.split("\n")[0]
    return first if len(first) <= 60 else f"{first[:60]}…"


# C++: one function named ``kernel`` with the original's arguments, without anything that reaches outside of it.


_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"][^>\"\n]+[>\"])", re.MULTILINE)
_ENTRY = re.compile(r'extern\s+"C"[^;{}()]*?\bvoid\s+kernel\s*\(')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_HEADERS = {
    *("algorithm", "array", "atomic", "bit", "cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstring"),
    *("functional", "immintrin.h", "limits", "memory", "numeric", "omp.h", "tuple", "type_traits", "utility", "vector"),
}
_FORBIDDEN = {
    "keeps data from call to call": r"\bthread_local\b|\bstatic\b(?!\s*(?:inline|constexpr|const)\b)",
    "reaches out of the kernel": (
        r"\b(?:dlopen|dlsym|system|popen|fork|execv\w*|f?open|ptrace|mprotect|mmap|syscall|getenv|setenv|sigaction"
        r"|signal|raise|kill|abort|_?exit)\s*\(|\b(?:py|Py)[A-Z_]\w*|\bpybind11\b"
    ),
    "asks for the time": r"\bstd::chrono\b|\b(?:clock_gettime|gettimeofday|clock|_*rdtscp?)\s*\(",
    "starts threads of its own": r"\bstd::(?:j?thread|async)\b|\bpthread_\w+",
    "changes a setting of the whole process": (
        r"\bomp_set_\w+|\b_MM_SET_\w+|\b_mm_setcsr\b|\bfesetround\b|\bat::set_\w+"
    ),
    "is assembler": r"\b(?:asm|__asm__)\b",
    "is run when the library is loaded": r"__attribute__\s*\(\(\s*(?:constructor|destructor)",
}
_VARIABLE = re.compile(
    r"(?:^|[;}])\s*(?!\s|(?:using|typedef|struct|class|enum|namespace|template)\b|(?:(?:static|inline)\s+)*const)"
    r"([\w:<>,\s*&]+?[\s*&]\w+(?:\[[^\]]*\])*)\s*(?:=|;)"
)
"""Matches a variable that is not constant, in a text from which everything in braces was removed."""


def check_cpp(source: str, original: str, required: int | None = None) -> None:
    """Checks that an edited C++ kernel may replace the original. The arguments and errors are those for Triton."""
    text = remove_comments(source)
    entries = _ENTRY.findall(text)
    if len(entries) > 1:
        raise InductorBenchError(f"there are {len(entries)} functions named kernel", "leave one of them")
    try:
        types, wanted = list_argument_types(text), list_argument_types(remove_comments(original))
    except UnwritableKernelError:
        raise InductorBenchError(
            'there is no function `extern "C" void kernel(…)`', "keep the name and the arguments of the kernel"
        ) from None
    _check_parameters(list(types), list(wanted), len(wanted) if required is None else required)
    here = {header[1:-1] for header in _INCLUDE.findall(original)}
    for header in (header[1:-1] for header in _INCLUDE.findall(text)):
        if header not in here | _HEADERS:
            raise InductorBenchError(
                f"it includes {header}, which is not for kernels", f"there are {', '.join(sorted(_HEADERS))}"
            )
    for why, found in _find_forbidden(text, remove_comments(original)):
        raise InductorBenchError(f"{found} {why}, so a check could not tell what it does", LEAVE_OUT)


def _find_forbidden(text: str, original: str) -> Iterator[tuple[str, str]]:
    """Returns what is forbidden and stands in the text but not in the original, each with the reason."""
    for why, pattern in _FORBIDDEN.items():
        known = {found.group() for found in re.finditer(pattern, original)}
        for found in re.finditer(pattern, _TEXT.sub('""', text)):
            if found.group() not in known:
                yield why, f"`{found.group().strip().rstrip('(')}`"
    known = {found.group(1) for found in _VARIABLE.finditer(_keep_top_level(original))}
    for found in _VARIABLE.finditer(_keep_top_level(text)):
        if found.group(1) not in known:
            yield "keeps data from call to call", f"`{found.group(1).strip()}`"


def _keep_top_level(text: str) -> str:
    """Returns the text without directives and without everything in braces."""
    text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)
    while (inner := re.sub(r"\{[^{}]*\}", ";", text)) != text:
        text = inner
    return text


def remove_comments(source: str) -> str:
    """Returns a C++ text without its comments, with continued lines joined."""
    return _COMMENT.sub(" ", source.replace("\\\n", ""))
