"""emit: Schedule → the text of one module, from one template.

Templates hold no logic; everything they print is a string, a flag or a tuple of such made here and in the backend. The same
schedule and the same templates give the same bytes: there is no date, host, path or version in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

from rlscan.backends import BACKENDS
from rlscan.backends.base import file_name
from rlscan.schedule import Schedule, local_name
from rlscan.words import recurrence


def emit(schedule: Schedule, backend: str, templates: Mapping[str, str]) -> str:
    """The module's text. `templates` are the template files' texts by name."""
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(dict(templates)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    template, view = BACKENDS[backend].schedules[schedule.kind]
    text = environment.get_template(template).render(k={**_common(schedule), **view(schedule)})
    return _tidy(text)


def _common(schedule: Schedule) -> dict[str, Any]:
    scan = schedule.scan
    tensors = [local_name(name) for name in scan.tensors]
    numbers = [local_name(item.name) for item in scan.inputs if item.kind in ("float", "num")]
    outputs = [local_name(output.name) for output in scan.outputs]
    return {
        "title": in_docstring(scan.title or scan.name),
        "cite": in_docstring(scan.cite),
        "file": file_name(scan.source.name),
        "digest": scan.digest,
        "recurrence": recurrence(scan),
        "about": f"Schedule {schedule.kind}, {', then '.join(schedule.directions)} in time.",
        "axes": tuple(map(local_name, (*schedule.lane_axes, *schedule.reduced_axes))),
        "axis_sizes": tuple(_axis_sizes(schedule)),
        "tensors": ", ".join(tensors),
        "number_tuple": ", ".join(numbers) + ("," if len(numbers) == 1 else ""),
        "first_output": _first_given(outputs),
        "launch_parameters": ", ".join([*tensors, *(local_name(param.name) for param in scan.params)]),
    }


def in_docstring(text: str) -> str:
    """A spec's free text as part of a docstring: it stays text, whatever it holds."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def _first_given(outputs: list[str]) -> str:
    """An expression for the first output that is asked for."""
    if len(outputs) == 1:
        return outputs[0]
    return f"next(x for x in ({', '.join(outputs)}) if x is not None)"


def _axis_sizes(schedule: Schedule) -> list[dict[str, str]]:
    """Where a launch reads the size of each named axis: off the first required input that has it."""
    found = []
    for axis in (*schedule.lane_axes, *schedule.reduced_axes):
        owners = [item for item in schedule.scan.inputs if axis in item.dims]
        owner = next((item for item in owners if not item.optional), owners[0])
        found.append({"name": local_name(axis), "value": f"{local_name(owner.name)}.shape[{owner.dims.index(axis)}]"})
    return found


def _tidy(text: str) -> str:
    """Single blank lines inside, two between definitions, one newline at the end."""
    lines: list[str] = []
    blank = 0
    for line in text.split("\n"):
        if line.strip():
            starts = not line[0].isspace() and line.startswith(("def ", "@", "class "))
            decorated = bool(lines) and lines[-1].startswith("@") and blank == 0
            if lines and starts and not decorated:
                blank = 2
            lines.extend([""] * min(blank, 2))
            lines.append(line.rstrip())
            blank = 0
        else:
            blank += 1
    return "\n".join(lines) + "\n"
