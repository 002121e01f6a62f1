"""`rlscan new`: the text that a spec of one's own starts from. It compiles as it is, and says what each part is for."""

from __future__ import annotations

import re
from pathlib import Path

from rlscan import store
from rlscan.diagnostics import SpecError
from rlscan.parse import parse

START = """\
# {file}: check it with `rlscan check`, read it with `rlscan explain`, try it with `rlscan test`.
rlscan: 1
name: {name}
title: TD(λ) returns of a reward and a value     # what it is, in one line
cite: the paper and its equation

inputs:                                  # the tensors of a call
  rewards:    f[B, T]                    # f: any float; B environments by T steps
  values:     f[B, T]
  terminated: flag[B, T]                 # a flag marks an episode's *last* step
  last_value: f[B]                       # no T: one number for each environment

params:                                  # the numbers of a call
  gamma: 0.99 in [0, 1]                  # a default and a range; a call may give [B] or [B, T] too
  lam:   0.95 in [0, 1]

edge:
  values: last_value                     # what values[t+1] is past the last step

let:                                     # names for parts of the equation
  # Where an episode ends there is no next value: say so with a select, never with a product by zero.
  next_value: where(terminated[t], 0, values[t+1])

scan:
  direction: backward                    # from s[t+1] to s[t]; `forward` comes from s[t-1]
  carry: g
  # The bare carry is the incoming one, here g[t+1]. It must be affine in it: + - *, and the branches of where.
  update: rewards[t] + gamma * ((1 - lam) * next_value[t] + lam * g)
  reset: terminated[t]                   # here the incoming carry is dropped
  start: last_value                      # the carry past the end that the scan comes from

outputs:
  returns: g[t]
"""


def write(path: Path, origin: str | None) -> str:
    """Write a start to a new file: the commented one, or a copy of a spec under the file's own name. Returns its name.

    FileExistsError where something is there, FileNotFoundError where `origin` names no spec, ValueError where the file's
    name makes no spec's name.
    """
    if path.suffix not in (".yaml", ".yml"):
        raise ValueError(f"a spec is a YAML file: write `{path.name}.yaml`")
    name = re.sub(r"[^a-z0-9]+", "_", path.stem.lower()).strip("_")
    text = START.format(file=path.name, name=name) if origin is None else copied(origin, name)
    try:
        parse(text, path.name)
    except SpecError as error:
        if error.code == "RLS110":
            raise ValueError(
                f"`{name}`, from the file's name, cannot name a spec: {error.help or error.message}"
            ) from None
        raise
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.absolute().parent}")
    try:
        # "x" refuses what is there already in the same step that makes the file.
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise FileExistsError(f"{path} is there already: nothing was written") from None
    return name


def copied(origin: str, name: str) -> str:
    """A spec's text under another name."""
    text, file = store.find_spec(origin)
    parse(text, file)
    return re.sub(r"^name:.*$", f"name: {name}", text, count=1, flags=re.MULTILINE)
