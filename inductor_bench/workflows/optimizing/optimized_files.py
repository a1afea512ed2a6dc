"""Writes what a search found for the user: a module that applies it, the lines to paste, and the change of the file.

It also runs any program with these settings, unchanged.
"""

from __future__ import annotations

import html
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...analysis.optimization.search_results import describe_result, write_program_command
from ...analysis.optimization.trial_plans import TrialCandidate, name_variant
from ...errors import InductorBenchError
from ...launch.process import run_in_terminal
from ...launch.worker import expose_package, join_paths
from ...messages.observed import CAPTURE_FOLDER, OBSERVE, PROFILES, STEPS, VARIANTS, ProgramVariant, VariantsRequest
from ...records.optimization import (
    ATTENTION,
    COMPILE,
    COMPILED,
    DYNAMO,
    ENVIRONMENT,
    FUNCTION,
    INDUCTOR,
    LOADER,
    MEMORY_FORMAT,
    OPTIMIZER,
    PINS,
    TORCH,
    Optimization,
    ProgramSetting,
    parse_value,
)
from ...source.standalone_header import make_plain_line, write_docstring
from ...source.user_program import (
    CAPTURABLE,
    FUSED_ON_CPU,
    OPTIMIZERS,
    add_compiled_step,
    add_decorator,
    add_keywords,
    add_lines,
    replace_calls,
    write_diff,
)
from ...store import codec
from ...store.files import read_text, remove_file, write_json, write_text
from ...store.folder import OptimizationFolder
from ..modules.compile_environment import SITE
from ..pins import make_users_environment
from .tried_program import REQUEST, list_switches, list_variables, read_trial_results

TORCH_OPTIMIZERS = "torch.optim."
"""What the paths of torch's own optimizers begin with."""

_ABOUT = """Settings that make {title} faster.

    import apply
    apply.apply()

Call it before the model is compiled, and before the optimizer and the data loader are made. It needs nothing but torch.
Measured with torch {torch} on {device}: {answer}"""

_MODULE = '''{about}
import functools
import gc
import importlib
import inspect
import os
import sys
import types

SETTINGS = {settings}
"""The kind, the name and the value of each setting."""


def apply():
    """Applies all settings to what this process makes from now on."""
    for kind, name, value in SETTINGS:
        globals()["set_" + kind](name, value)
    import torch

    torch.compile = after_the_program(torch.compile)


def after_the_program(compile):
    """torch.compile, which sets again what the program may have set in another way until then."""

    @functools.wraps(compile)
    def changed(*arguments, **keywords):
        for kind, name, value in SETTINGS:
            if kind in ("inductor", "dynamo", "torch", "attention"):
                globals()["set_" + kind](name, value)
        return compile(*arguments, **keywords)

    return changed


def set_attribute(thing, path, value):
    *places, last = path.split(".")
    for place in places:
        if not hasattr(thing, place):
            importlib.import_module(thing.__name__ + "." + place)
        thing = getattr(thing, place)
    if last.startswith("set_"):
        getattr(thing, last)(value)
    else:
        setattr(thing, last, value)


def set_inductor(name, value):
    """An option of Inductor."""
    import torch._inductor.config

    set_attribute(torch._inductor.config, name, value)


def set_dynamo(name, value):
    """An option of Dynamo."""
    import torch._dynamo.config

    set_attribute(torch._dynamo.config, name, value)


def set_torch(name, value):
    """An attribute of torch, or what a function sets."""
    import torch

    set_attribute(torch, name.removeprefix("torch."), value)


def set_optimizer(name, value):
    """An argument of the optimizers that have it, or their compiled step."""
    import torch

    if name == "compiled":
        torch.optim.Optimizer.__init__ = with_compiled_step(torch.optim.Optimizer.__init__)
        return
    for kind in list(vars(torch.optim).values()):
        if isinstance(kind, type) and name in inspect.signature(kind.__init__).parameters:
            kind.__init__ = with_argument(kind.__init__, name, value)


def set_loader(name, value):
    """An argument of data loaders."""
    from torch.utils.data import DataLoader

    DataLoader.__init__ = with_argument(DataLoader.__init__, name, value)


def set_compile(name, value):
    """An argument of torch.compile."""
    import torch

    torch.compile = with_argument(torch.compile, name, value)


def set_attention(name, value):
    """The order of the backends of attention. Torch's caches do not know it, so its graphs get a key of their own."""
    import torch.compiler.config
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tag = " attention %s;" % value
    if not torch.compiler.config.cache_key_tag.endswith(tag):
        torch.compiler.config.cache_key_tag += tag
    order = sdpa_kernel([getattr(SDPBackend, word.strip()) for word in value.split(",")], set_priority=True)
    while ORDERS:
        ORDERS.pop().__exit__(None, None, None)
    order.__enter__()
    ORDERS.append(order)


def set_layout(name, value):
    """The memory format of modules that are compiled."""
    import torch

    compile = torch.compile

    @functools.wraps(compile)
    def changed(model=None, *arguments, **keywords):
        if isinstance(model, torch.nn.Module):
            model = model.to(memory_format=getattr(torch, name))
        return compile(model, *arguments, **keywords)

    torch.compile = changed


def set_environment(name, value):
    """A variable; one that torch reads when it is imported has to be set before the program starts."""
    os.environ[name] = str(value)


def set_function(place, value):
    """A function that is compiled: one of torch by its path, another in its first call, which finds it."""
    if ":" not in place:
        module, _, name = place.rpartition(".")
        compile_function(getattr(importlib.import_module(module), name))
        return
    file, line, name = place.rsplit(":", 2)
    WANTED.append((os.path.realpath(file), int(line), name))
    sys.setprofile(watch)


KEPT = []
ORDERS = []
WANTED = []
EXCLUDED = {{"fused": "foreach", "foreach": "fused"}}


def with_argument(function, name, value):
    """The function, which gets an argument whatever it is called with."""

    @functools.wraps(function)
    def changed(*arguments, **keywords):
        other = EXCLUDED.get(name)
        if value and keywords.get(other):
            del keywords[other]
        return function(*arguments, **{{**keywords, name: value}})

    return changed


def with_compiled_step(init):
    """The beginning of an optimizer, whose step is compiled: learning rates are tensors, counts lie on the device."""
    import torch

    @functools.wraps(init)
    def changed(optimizer, *arguments, **keywords):
        init(optimizer, *arguments, **keywords)
        on_host = all(one.device.type == "cpu" for group in optimizer.param_groups for one in group["params"])
        flags = {{"fused": False, "foreach": not on_host, "capturable": not on_host}}
        for group in (optimizer.defaults, *optimizer.param_groups):
            group.update({{flag: value for flag, value in flags.items() if flag in group}})
        for group in optimizer.param_groups:
            if isinstance(group.get("lr"), (int, float)):
                group["lr"] = torch.tensor(float(group["lr"]))
        step = torch.compile(type(optimizer).step, options={{"triton.cudagraphs": False}})
        optimizer.step = types.MethodType(step, optimizer)

    return changed


def watch(frame, event, argument):
    """Looks at each call until all wanted functions were called, and compiles them from their next call on."""
    code = frame.f_code
    for wanted in [one for one in WANTED if one[2] == code.co_name] if event == "call" else ():
        file, line, _ = wanted
        last = max([number for *_, number in code.co_lines() if number], default=0)
        if code.co_firstlineno <= line <= last and os.path.realpath(code.co_filename) == file:
            WANTED.remove(wanted)
            for function in [one for one in gc.get_referrers(code) if isinstance(one, types.FunctionType)]:
                compile_function(function)
    if not WANTED:
        sys.setprofile(None)


def compile_function(function):
    """Gives a function other code, which calls a compiled copy of it, wherever the program has the function."""
    import torch

    code = function.__code__
    own = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    own.__kwdefaults__, own.__qualname__ = function.__kwdefaults__, function.__qualname__
    name = "compiled_%d" % len(KEPT)
    KEPT.append(torch.compile(own))
    function.__globals__[name] = KEPT[-1]
    free = ", ".join(code.co_freevars)
    lines = ["def outer(%s):" % free, " def inner(*arguments, **keywords):", "  if 0: (%s)" % free]
    lines += ["  return %s(*arguments, **keywords)" % name, " return inner"]
    space = {{}}
    exec("\\n".join(lines), space)
    function.__code__ = space["outer"](*code.co_freevars).__code__
'''


def write_optimized(
    found: Optimization, folder: OptimizationFolder, program: Path, optimizers: Sequence[str] = ()
) -> tuple[str, ...]:
    """Writes the files for the user, over those of an earlier search; returns their names.

    Args:
        found: the search, without secrets.
        folder: its folder.
        program: the program's file, if it is one.
        optimizers: the classes of its optimizers, as ``StepFacts.optimizer_classes`` names them.

    Raises:
        InductorBenchError: a file cannot be written.
    """
    texts = {}
    if found.winner is not None:
        settings = list_winning_settings(found)
        changed = write_settings_diff(program, settings, optimizers, on_host=not found.environment.device.accelerator)
        page = write_readme(found, settings, folder.path, optimizers, has_diff=bool(changed))
        texts = {folder.APPLY: write_apply_module(found, settings), folder.LINES: page}
        if changed:
            texts[folder.DIFF] = (
                f"{found.caveat[:1].upper()}{found.caveat[1:]}.\n{changed}" if found.caveat else changed
            )
    for name in (folder.APPLY, folder.LINES, folder.DIFF):
        if name in texts:
            write_text(folder.path / name, texts[name])
        else:
            remove_file(folder.path / name)
    return tuple(texts)


def list_winning_settings(found: Optimization) -> tuple[ProgramSetting, ...]:
    """Returns the settings of the rows that are kept."""
    slugs = found.winner.slugs if found.winner is not None else ()
    return tuple(setting for slug in slugs for setting in found.row(slug).settings)


def write_apply_module(found: Optimization, settings: Sequence[ProgramSetting]) -> str:
    """Writes the text of the module ``apply``.

    The record may come from another person, so its texts become literals, or words of the docstring.
    """
    versions = found.environment.versions
    device = found.environment.device.accelerator or found.environment.host.cpu
    words = {"title": found.title, "torch": versions.torch, "device": device, "answer": _write_answer(found)}
    about = write_docstring(_ABOUT.format(**{name: make_plain_line(value) for name, value in words.items()}))
    first = sorted(settings, key=lambda one: one.kind != ENVIRONMENT)  # before torch is imported
    values = [(one.kind, one.setting, parse_value(one.value)) for one in first if one.kind != PINS]
    listed = "[\n" + "".join(f"    {value!r},\n" for value in values) + "]"
    return _MODULE.format(about=about, settings=listed)


def _write_answer(found: Optimization) -> str:
    said = describe_result(found)
    return f"{said}; {found.caveat}." if found.caveat else f"{said}." if said else ""


def write_lines_to_paste(settings: Sequence[ProgramSetting], optimizers: Sequence[str] = ()) -> Iterator[str]:
    """Writes the lines that a user pastes, with calls that contain the user's own names.

    Args:
        settings: the settings.
        optimizers: the classes of the program's optimizers; none if they are unknown.
    """
    yield from list_assignments(settings)
    for one in settings:
        if one.kind == OPTIMIZER:
            yield from _write_optimizer_lines(one, optimizers)
        elif one.kind == FUNCTION and ":" in one.setting:
            file, line, name = one.setting.rsplit(":", 2)
            yield f"@torch.compile  # above def {name}, which has line {line} of {file}"
        elif one.kind == FUNCTION:
            yield f"loss = {name_compiled(one.setting)}(…)  # in place of {one.setting}"
        elif one.kind == LOADER:
            yield f"loader = DataLoader(…, {one.setting}={one.value})"
        elif one.kind == COMPILE:
            yield f"model = torch.compile(model, {one.setting}={one.value})"
        elif one.kind == MEMORY_FORMAT:
            yield f"model = model.to(memory_format=torch.{one.setting})"
        elif one.kind == ATTENTION:
            names = ", ".join(f"SDPBackend.{name}" for name in str(parse_value(one.value)).split(","))
            yield "# torch's caches may hold graphs with other backends, so they get a key of their own"
            yield f"torch.compiler.config.cache_key_tag += {f' attention {parse_value(one.value)};'!r}"
            yield "from torch.nn.attention import SDPBackend, sdpa_kernel"
            yield f"with sdpa_kernel([{names}], set_priority=True):  # around the steps"
        elif one.kind == ENVIRONMENT:
            yield f"# in the shell: export {one.setting}={shlex.quote(str(parse_value(one.value)))}"
        elif one.kind == PINS:
            yield "# the configs of the retunes: inductor-bench apply RUN writes RUN/tuned, with a line for each"


def _write_optimizer_lines(setting: ProgramSetting, optimizers: Sequence[str]) -> Iterator[str]:
    """Writes the lines for each of the program's optimizers, or comments in place of the lines if their classes are
    unknown."""
    if setting.setting != COMPILED:
        takes = {TORCH_OPTIMIZERS + name for name in (FUSED_ON_CPU if setting.setting == "fused" else OPTIMIZERS)}
        own = [path for path in optimizers if not path.startswith(TORCH_OPTIMIZERS)]
        named = [path for path in optimizers if path in takes] or own
        for path in named:
            yield f"optimizer = {path}(…, {setting.setting}={setting.value})"
        if not named:
            yield f"# the optimizer gets {setting.setting}={setting.value} where it is made"
        return
    for path in optimizers:
        capturable = path in {TORCH_OPTIMIZERS + name for name in CAPTURABLE}
        counts = ", capturable=True)  # capturable on a GPU" if capturable else ")"
        yield f"optimizer = {path}(…, lr=torch.tensor(…){counts}"
    if not optimizers:
        yield "# the optimizer gets lr=torch.tensor(…) when it is made, and on a GPU capturable=True"
    yield "step = torch.compile(type(optimizer).step, options={'triton.cudagraphs': False})"
    yield "optimizer.step = step.__get__(optimizer)  # before schedulers"


def list_assignments(settings: Sequence[ProgramSetting]) -> list[str]:
    """Returns the lines that are statements of their own, after the imports."""
    modules = {INDUCTOR: "torch._inductor.config", DYNAMO: "torch._dynamo.config"}
    needed = dict.fromkeys(modules[one.kind] for one in settings if one.kind in modules)
    paths = [one.setting for one in settings if one.kind == TORCH or (one.kind == FUNCTION and ":" not in one.setting)]
    needed |= dict.fromkeys(path.rpartition(".")[0] for path in paths if path.startswith("torch._"))
    if paths and not needed:
        needed["torch"] = None
    lines = [f"import {module}" for module in needed]
    for one in settings:
        if one.kind == FUNCTION and ":" not in one.setting:
            lines.append(f"{name_compiled(one.setting)} = torch.compile({one.setting})")
        if one.kind in modules:
            lines.append(f"{modules[one.kind]}.{one.setting} = {one.value}")
        elif one.kind == TORCH:
            is_call = one.setting.rpartition(".")[2].startswith("set_")
            lines.append(f"{one.setting}({one.value})" if is_call else f"{one.setting} = {one.value}")
    return lines


def name_compiled(path: str) -> str:
    """Returns the name of a compiled function of torch, which a program calls instead of the function."""
    return f"compiled_{path.rpartition('.')[2]}"


def write_settings_diff(
    program: Path, settings: Sequence[ProgramSetting], optimizers: Sequence[str] = (), *, on_host: bool = False
) -> str:
    """Writes the change of the program's file that makes all settings; empty if some settings have no place in the
    file.

    Args:
        program: the program's file.
        settings: the settings.
        optimizers: the classes of the program's optimizers; calls of other classes stay. If they are unknown, all
            classes count.
        on_host: whether it runs on a CPU.
    """
    if program.suffix != ".py" or not program.is_file():
        return ""
    made = OPTIMIZERS.intersection(path.rpartition(".")[2] for path in optimizers) if optimizers else OPTIMIZERS
    calls = {OPTIMIZER: made, LOADER: frozenset({"DataLoader"}), COMPILE: frozenset({"torch.compile"})}
    places = [one.setting for one in settings if one.kind == FUNCTION and ":" in one.setting]
    if any(one.kind not in (*calls, INDUCTOR, DYNAMO, TORCH, FUNCTION) for one in settings):
        return ""
    try:
        texts = {program.resolve(): read_text(program)}
        for place in places:
            file = Path(place.rsplit(":", 2)[0]).resolve()
            texts.setdefault(file, read_text(file))
    except InductorBenchError:
        return ""
    before = dict(texts)
    for place in sorted(places, key=lambda place: int(place.rsplit(":", 2)[1]), reverse=True):
        path, line, name = place.rsplit(":", 2)
        changed = add_decorator(texts[Path(path).resolve()], name, int(line))
        if changed is None:
            return ""
        texts[Path(path).resolve()] = changed
    own = _add_settings(texts[program.resolve()], settings, calls, on_host=on_host)
    if own is None:
        return ""
    texts[program.resolve()] = own
    names = {file: os.path.relpath(file, program.resolve().parent) for file in texts}
    return "".join(write_diff(before[file], texts[file], names[file]) for file in texts if before[file] != texts[file])


def _add_settings(
    text: str, settings: Sequence[ProgramSetting], calls: Mapping[str, frozenset[str]], *, on_host: bool
) -> str | None:
    """Returns the program's text with keywords in its calls, the optimizer's compiled step, and lines after its
    imports."""
    made: str | None = text
    for kind, names in calls.items():
        keywords = {one.setting: one.value for one in settings if one.kind == kind and one.setting != COMPILED}
        if keywords and made is not None:
            made = add_keywords(made, names, keywords)
    if made is not None and any((one.kind, one.setting) == (OPTIMIZER, COMPILED) for one in settings):
        made = add_compiled_step(made, calls[OPTIMIZER], on_host=on_host)
    for path in (one.setting for one in settings if one.kind == FUNCTION and ":" not in one.setting):
        made = replace_calls(made, path, name_compiled(path)) if made is not None else None
    known = text.splitlines()
    lines = [line for line in list_assignments(settings) if line not in known]
    return add_lines(made, lines) if lines and made is not None else made


def write_readme(
    found: Optimization,
    settings: Sequence[ProgramSetting],
    folder: Path,
    optimizers: Sequence[str] = (),
    *,
    has_diff: bool = False,
) -> str:
    """The page of the folder, in Markdown."""
    change = " (`settings.diff` is the same as a change of the program's file)" if has_diff else ""
    place = shlex.quote(os.path.relpath(folder))
    command = make_plain_line(f"inductor-bench apply {place} -- {write_program_command(found)}")
    lines = [
        f"# Settings that make {html.escape(make_plain_line(found.title))} faster",
        "",
        _write_answer(found),
        "",
        "```bash",
        f"{command}    # any program, unchanged",
        "```",
        "",
        f"To paste{change}:",
        "",
        "```python",
        *map(make_plain_line, write_lines_to_paste(settings, optimizers)),
        "```",
        "",
        "Or by one call, before the model is compiled and an optimizer is made (`sys.path` needs this folder):",
        "",
        "```python",
        "import apply",
        "apply.apply()",
        "```",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class OptimizedProcess:
    """The end of a program that ran with the settings."""

    exit_code: int
    settings: tuple[str, ...]  # the settings
    applied: tuple[str, ...]  # the settings with which steps were seen
    refused: tuple[str, ...]  # those that had no effect, each with its reason
    caveat: str = ""  # what the search has not yet done with the settings; empty if nothing is missing


def run_optimized(folder: Path, command: Sequence[str]) -> OptimizedProcess:
    """Runs a program with the settings of a search, in this terminal.

    Raises:
        InductorBenchError: the search found none, or the program cannot be started.
    """
    found = OptimizationFolder(folder).load()
    settings = list_winning_settings(found)
    if found.winner is None:
        raise InductorBenchError(
            f"{folder} holds no setting that is proven", "`inductor-bench optimize` searches for some", "nothing-proven"
        )
    candidate = TrialCandidate(name_variant(found.winner.slugs), settings)
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    try:
        switches = list_switches(candidate)
        variant = ProgramVariant(candidate.slug, switches)
        request = VariantsRequest((variant,), alternates=False, timed_s=0.0, least=0, most=0, checks=False)
        write_json(work / REQUEST, codec.encode(request))
        environment = make_users_environment()
        environment |= {
            CAPTURE_FOLDER: str(work.resolve()),
            OBSERVE: STEPS,
            PROFILES: "0",
            VARIANTS: str((work / REQUEST).resolve()),
            "PYTHONPATH": join_paths(str(SITE), join_paths(expose_package(work), environment.get("PYTHONPATH"))),
            **list_variables([candidate]),
        }
        code = run_in_terminal(command, environment)
        states = [state for one in read_trial_results(work) for state in one.variants]
        refused = dict.fromkeys(said for state in states for said in state.refused)
        named = {name for state in states for name in state.applied}
        words = tuple(setting.words for setting in settings)
        applied = tuple(
            said for said, one in zip(words, switches, strict=True) if f"{one.setting}={one.value}" in named
        )
        return OptimizedProcess(code, words, applied, tuple(refused), found.caveat)
    finally:
        shutil.rmtree(work, ignore_errors=True)
