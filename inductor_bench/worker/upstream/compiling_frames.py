"""Tells, through private names of Dynamo, which object's code a compilation is of, and who called it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

_CONVERTER = os.path.join("torch", "_dynamo", "convert_frame.py")
_WRAPPERS = os.path.join("torch", "_dynamo", "external_utils.py")


@dataclass(frozen=True)
class CompilingFrame:
    """A frame whose code Dynamo compiles. ``owner`` is the ``nn.Module`` whose method it is; ``None`` for another."""

    code: CodeType
    owner: Any


OnFrame = Callable[[str, CompilingFrame, "FrameType | None"], None]


def on_frame(note: OnFrame) -> None:
    """Calls ``note`` at each compilation of a frame, with its id, the frame, and the frame that called it. (2.13)

    The id is Dynamo's: the frame's number and that of the compilation, ``0/1``.
    """
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    def begins(now: Any) -> None:
        if now.callback_trigger is not CallbackTrigger.DYNAMO:
            return
        stack: FrameType | None = sys._getframe(1)
        found = None
        while stack is not None:
            frame: Any = stack.f_locals.get("frame") if stack.f_code.co_filename.endswith(_CONVERTER) else None
            if isinstance(getattr(frame, "f_code", None), CodeType):
                found = CompilingFrame(frame.f_code, _owner(frame))
            elif found is not None:
                break
            stack = stack.f_back
        if found is not None:
            note(str(now.compile_id), found, stack)

    callback_handler.register_start_callback(begins)


def _owner(frame: Any) -> Any:
    code, variables = frame.f_code, frame.f_locals
    if code.co_filename.endswith(_WRAPPERS):
        found = variables.get("fn")
    else:
        found = variables.get(code.co_varnames[0]) if code.co_argcount and code.co_varnames else None
        if code.co_name in ("forward", "__call__", "_call_impl") or code.co_varnames[:1] == ("self",):
            found = unwrapped(found)
        else:
            found = None  # a function's first argument may be a module, and is not its owner
    found = unwrapped(getattr(found, "__self__", found))
    return found if is_module(found) else None


def unwrapped(value: Any) -> Any:
    """The module behind what ``torch.compile`` and the parallel wrappers made of it; another value is returned."""
    for name in ("_orig_mod", "module"):
        if is_module(value) and type(value).__name__ in ("OptimizedModule", "DistributedDataParallel", "DataParallel"):
            value = value._modules.get(name, value)
    return value


def is_module(value: Any) -> bool:
    """Whether a value is an ``nn.Module``. It does not touch attributes of other values."""
    return issubclass(type(value), sys.modules["torch.nn"].Module)


def is_of_torch(file: str) -> bool:
    """Whether a file is torch's, or Python's own for its contexts."""
    folder = os.path.dirname(sys.modules["torch"].__file__ or "")
    return file.startswith(folder) or os.path.basename(file) == "contextlib.py"
