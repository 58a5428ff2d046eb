"""Calls NVML: returns the answer, or its error as a value."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

import pynvml

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

ERRORS = {code: name[11:] for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
OLDER_DRIVER = ("FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT", "NOT_SUPPORTED")
FIELD_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by NVML's value type
MISMATCH = getattr(pynvml, "NVMLLibraryMismatchError", AttributeError)
NOT_SUPPORTED = {"error": "NOT_SUPPORTED", "text": "the driver does not know this field"}


def answer_to(ask: Callable[..., object], *arguments: object) -> object:
    """A call's answer, or its error as a value: errors of one GPU do not affect others."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as problem:
        return _error(problem.value, str(problem))
    except (AttributeError, MISMATCH) as problem:  # an nvidia-ml-py without the call, or with only a newer form
        return {"error": "FUNCTION_NOT_FOUND", "text": str(problem)}
    except (ValueError, TypeError, IndexError, ctypes.ArgumentError) as problem:
        return {"error": "NOT_UNDERSTOOD", "text": f"{type(problem).__name__}: {problem}"}


def is_unsupported(answer: object) -> bool:
    """Whether an answer is the error of a driver or GPU without support."""
    return isinstance(answer, dict) and answer.get("error") in OLDER_DRIVER


def call(name: str, *more: int, of: Callable[[Any], object] | None = None) -> Callable[[object], object]:
    """A pynvml function by name, with `of` applied to its answer."""

    def ask(handle: object) -> object:
        answer = getattr(pynvml, name)(handle, *more)
        return of(answer) if of else answer

    return ask


def filled(name: str, struct: str, of: Callable[[Any], object]) -> Callable[[object], object]:
    """A function that fills a structure, with `of` applied to that."""

    def ask(handle: object) -> object:
        structure = getattr(pynvml, struct)()
        getattr(pynvml, name)(handle, ctypes.byref(structure))
        return of(structure)

    return ask


def newest(*functions: Callable[[object], object]) -> Callable[[object], object]:
    """The first of these functions, newest first, that this driver supports."""

    def ask(handle: object) -> object:
        answer: object = None
        for ask_so in functions:
            answer = answer_to(ask_so, handle)
            if not is_unsupported(answer):
                break
        return answer

    return ask


def fields(handle: object, wanted: Iterable[object]) -> tuple[object, ...]:
    """The values of fields by NVML's numbers, or pairs of number and link, in one call; each or its error."""
    return tuple(_field(field) for field in pynvml.nvmlDeviceGetFieldValues(handle, list(wanted)))


def _field(field: Any) -> object:
    """A field's value; drivers report an unknown field as an invalid argument."""
    if field.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT:
        return NOT_SUPPORTED
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return _error(field.nvmlReturn, str(pynvml.NVMLError(field.nvmlReturn)))
    return answer_to(lambda: getattr(field.value, FIELD_VALUES[field.valueType]))


def _error(code: int, text: str) -> dict[str, str]:
    return {"error": ERRORS.get(code, f"CODE_{code}"), "text": text}
