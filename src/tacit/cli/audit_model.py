"""``--model FILE:function``: a user's own model, loss, data and plan for the self-test."""

from __future__ import annotations

import copy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tacit.cli.options import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from tacit.auditing.replay import Setting

WANTED: Final = (
    "a tacit.auditing.replay.Setting, or (model, loss, dataset) and, if you like, a plan"
)


def setting_of(text: str) -> Setting:
    """What the function of the file returns, as a setting. The file is run: it is the user's."""
    file, mark, name = text.rpartition(":")
    if not mark or not file or not name:
        raise Refusal(f"--model must be FILE:function, got {text}")
    function = _function(Path(file), name, text)
    try:
        found = function()
    except Exception as error:  # the user's own code may raise anything
        raise Refusal(f"--model {text} raised {type(error).__name__}: {error}") from error
    return _as_setting(found, text)


def _function(path: Path, name: str, text: str) -> Callable[[], Any]:
    if not path.is_file():
        raise Refusal(f"--model {text}: there is no file {path}")
    spec = spec_from_file_location(f"tacit_audited_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise Refusal(f"--model {text}: {path} is no Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.absolute()))  # for what lies beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refusal(f"--model {text}: {path} raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    found = getattr(module, name, None)
    if not callable(found):
        raise Refusal(f"--model {text}: {path} has no function {name}")
    return found  # type: ignore[no-any-return]  # a user's


def _as_setting(found: Any, text: str) -> Setting:
    from tacit.auditing.replay import Setting
    from tacit.training import Plan

    if isinstance(found, Setting):
        return found
    if not isinstance(found, tuple) or len(found) not in (3, 4):
        raise Refusal(f"--model {text} must return {WANTED}, got {type(found).__name__}")
    model, loss, dataset = found[:3]
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Refusal(
            f"--model {text} must return a map-style dataset in third place, "
            f"got {type(dataset).__name__}"
        )
    if not callable(loss):
        raise Refusal(f"--model {text} must return loss(model, batch) in second place")
    count = len(dataset)
    plan = found[3] if len(found) == 4 else None
    if plan is None:
        plan = Plan(examples=count, lot_size=max(1, count // 4), steps=100, noise_multiplier=1.0,
                    clip=1.0)  # fmt: skip
    if not isinstance(plan, Plan):
        raise Refusal(
            f"--model {text} must return a Plan in fourth place, got {type(plan).__name__}"
        )
    return Setting(model=_maker(model, text), loss=loss, dataset=dataset, plan=plan)


def _maker(model: Any, text: str) -> Callable[[], nn.Module]:
    """Makes the model anew each time."""
    from torch import nn

    if isinstance(model, nn.Module):
        return lambda: copy.deepcopy(model)
    if not callable(model):
        raise Refusal(
            f"--model {text} must return a model, or a function that makes one, in first place, "
            f"got {type(model).__name__}"
        )
    return model  # type: ignore[no-any-return]
