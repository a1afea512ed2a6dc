"""A C++ compiler that compiles nothing twice.

Programs that the tests start compile the same kernels again and again, and each process with a C++ kernel asks for the
preprocessed text of torch's headers. As a program this file stands before g++ on ``PATH``: it hands a compilation to
g++, keeps what that wrote, and copies it when the same text is to be compiled with the same arguments. Everything else
goes to g++: other requests, precompiled headers (torch keeps them), and whatever fails.

What it keeps lies in ``.pytest_cache`` of the checkout, for later sessions as well, apart for each g++, torch and
processor. What no test has asked for in two weeks goes.
"""

from __future__ import annotations

import os
import sys
import time

SOURCES = (".cpp", ".hpp")
STUBS = "stubs"
"""The folder of libraries without symbols that have the names of torch's."""

TRIAL = b"_chk_kernel"
"""What is in the sources with which torch tries the processor's vectors: a small process loads their libraries."""

TORCH = ("torch", "torch_cpu", "torch_python", "c10")
KEPT_S = 14 * 24 * 3600.0


def install(folder: str, kept: str) -> None:
    """Puts a ``g++`` that keeps its results before the one that there is, for the processes from now on.

    Args:
        folder: where the session keeps its ``g++``.
        kept: where sessions keep what was compiled.
    """
    import shlex
    import shutil

    real = shutil.which("g++")
    if real is None:
        return
    programs = os.path.join(folder, "bin")
    os.makedirs(programs)
    store = os.path.join(kept, surroundings_key(real))
    try:
        os.makedirs(os.path.join(store, STUBS), exist_ok=True)
    except OSError:  # a checkout that nobody may write to
        store = os.path.join(folder, "compiled")
        os.makedirs(os.path.join(store, STUBS))
    forget_old(kept, time.time() - KEPT_S)
    for name in TORCH:
        library = os.path.join(store, STUBS, f"lib{name}.so")
        if not os.path.exists(library):
            part = f"{library}.{os.getpid()}"
            words = ["-shared", "-nostdlib", f"-Wl,-soname,lib{name}.so", "-o", part, "-x", "c++", os.devnull]
            if os.spawnv(os.P_WAIT, real, [real, *words]) == 0:
                os.replace(part, library)
    script = os.path.join(programs, "g++")
    words = [sys.executable, "-IS", os.path.abspath(__file__), real, store]
    with open(script, "w") as file:
        file.write(f'#!/bin/sh\ncase " $* " in *" -o "*) exec {shlex.join(words)} "$@" ;; esac\n')
        file.write(f'exec {shlex.quote(real)} "$@"\n')  # it is only asked what it is
    os.chmod(script, 0o755)
    os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])


def surroundings_key(compiler: str) -> str:
    """Names what decides, beside texts and arguments, what is compiled: g++, torch's headers, and the processor."""
    import hashlib
    import subprocess
    from importlib.metadata import version

    said = subprocess.run([compiler, "-v"], capture_output=True, text=True).stderr
    with open("/proc/cpuinfo") as file:
        processor = [line for line in file if line.startswith(("model name", "flags", "Features"))][:2]
    told = "\n".join([os.path.realpath(compiler), said, version("torch"), *processor])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def forget_old(kept: str, before: float) -> None:
    """Removes what was last asked for before a moment, in seconds since the epoch; libraries without symbols stay."""
    for folder, names, files in os.walk(kept):
        if STUBS in names:
            names.remove(STUBS)
        for path in (os.path.join(folder, file) for file in files):
            try:
                if os.stat(path).st_mtime < before:
                    os.unlink(path)
            except OSError:
                continue  # another session has removed it


def main(compiler: str, store: str, arguments: list[str]) -> int:
    place = _place_of_output(arguments)
    if place is None:
        os.execv(compiler, [compiler, *arguments])
    output, kept = arguments[place], os.path.join(store, _key(arguments, place))
    if not os.path.exists(kept):
        before, after = _in_a_hurry(compiler, store, arguments)
        code = os.spawnv(os.P_WAIT, compiler, [compiler, *before, *arguments, *after])
        if code != 0:
            return code if code > 0 else 1
        _copy(output, kept)
    else:
        _copy(kept, output)
        os.utime(kept)
    return 0


def _in_a_hurry(compiler: str, store: str, arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before and after the arguments, to leave out what takes g++ half of its time: warnings, symbols of
    torch's libraries, which it links, most optimizations, and what a debugger reads."""
    if "-shared" not in arguments:
        return ["-w"], []
    linker = ["-fuse-ld=gold"] if os.path.exists(os.path.join(os.path.dirname(compiler), "ld.gold")) else []
    with open(next(word for word in arguments if word.endswith(SOURCES)), "rb") as file:
        needs_torch = [] if TRIAL in file.read() else ["-Wl,--no-as-needed"]
    less = ["-O1", "-g0"] if "-O3" in arguments else []
    return ["-w", *linker, *needs_torch, f"-L{os.path.join(store, STUBS)}"], less


def _place_of_output(arguments: list[str]) -> int | None:
    """The index of the output's path; ``None`` if one source is not compiled into one file."""
    if arguments.count("-o") != 1 or len([word for word in arguments if word.endswith(SOURCES)]) != 1:
        return None
    place = arguments.index("-o") + 1
    return None if place == len(arguments) or arguments[place].endswith(".gch") else place


def _key(arguments: list[str], place: int) -> str:
    """Names a compilation by its arguments and by the texts of its source and of the header that it includes first."""
    import hashlib

    key = hashlib.sha256()
    for number, word in enumerate(arguments):
        is_text = word.endswith(SOURCES) or (number > 0 and arguments[number - 1] == "-include")
        if number == place:
            key.update(b"\0output")
        elif is_text:
            with open(word, "rb") as file:
                key.update(b"\0text" + file.read())
        else:
            key.update(b"\0word" + word.encode())
    return key.hexdigest()


def _copy(source: str, target: str) -> None:
    """Copies a file so that no process finds half of it."""
    part = f"{target}.{os.getpid()}"
    with open(source, "rb") as read, open(part, "wb") as write:
        write.write(read.read())
    os.chmod(part, os.stat(source).st_mode & 0o777)
    os.replace(part, target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
