"""Correct a wrong declaration: a `config.json` under which a checkpoint's audit finds less, or nothing."""

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spectrope.checkpoints.adapters import layer_name
from spectrope.checkpoints.audit.catalogue import fault
from spectrope.checkpoints.audit.compare import compare
from spectrope.checkpoints.audit.declaration import contradictions, declared_layer, layer_type
from spectrope.checkpoints.audit.declared_rope import FRACTIONS, OLD_KEYS, rope_parameters
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.records import Audit, LayerRecord
from spectrope.checkpoints.audit.twice_declared import SUPERSEDED
from spectrope.checkpoints.audit.unread_fields import factor_alone
from spectrope.core import ConfigError, SpectropeError
from spectrope.store import replace_file, temporary_folder

ConfigFields = dict[str, Any]
NO_ROPE = ("no_rope_layers", "no_rope_layer_interval")
LOADS, APPLIES = "declares the same where transformers reads it", "declares what the model applies"


@dataclass(frozen=True)
class Repair:
    """A configuration that was corrected, audited again, and written; or what must change in code.

    Args:
        path: The file that was written; None if no edit of the configuration makes the audit find less.
        changes: Fields that changed, with both values, in words.
        meaning: What the corrected configuration does.
        audit: Of the checkpoint with the corrected configuration; None without one.
        in_code: What must change in code for each code that remains, from the catalogue.
    """

    path: Path | None
    changes: tuple[str, ...]
    meaning: str
    audit: Audit | None
    in_code: tuple[str, ...]

    def to_dict(self) -> ConfigFields:
        """JSON-ready values, with the outcome of the second audit in its place."""
        return {
            "path": None if self.path is None else str(self.path),
            "changes": list(self.changes),
            "meaning": self.meaning,
            "outcome": None if self.audit is None else self.audit.outcome,
            "in_code": list(self.in_code),
            "reason": self.reason,
        }

    @property
    def reason(self) -> str:
        """Why nothing was written, or ""."""
        if self.path is not None:
            return ""
        if not self.in_code:
            return "Nothing differs, so no configuration was written."
        return "No edit of config.json that was tried reduces the findings; nothing was written."


NOTHING = Repair(None, (), "", None, ())  # Of an audit in which nothing differs.


def check_out(out: Path) -> None:
    """Refuse a folder for a corrected configuration that holds anything.

    Raises:
        ConfigError: If it does, or is a file.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--fix writes into a new or empty folder; {out} exists and is not empty.")


def repair(
    folder: Path, declaration: Declaration, found: Audit, out: Path, again: Callable[[Path], Audit]
) -> Repair:
    """Correct the configuration of a checkpoint, audit it again, and write the configuration alone.

    Args:
        folder: Of the checkpoint, which stays as it is.
        declaration: What it declares.
        found: Its audit.
        out: New or empty folder for `config.json`.
        again: Audits the checkpoint in another folder with the same options.

    Raises:
        ConfigError: If `out` holds anything, or the configuration cannot be read.
    """
    check_out(out)
    whole = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    before = _text(whole)
    for meaning, after in _corrections(before, declaration, found):
        corrected = copy.deepcopy(whole)
        _text(corrected).clear()
        _text(corrected).update(after)
        audited = _audited(folder, corrected, again)
        if audited is None or not _better(audited, found):
            continue
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / "config.json", lambda path: path.write_bytes(_content(corrected)))  # noqa: B023
        return Repair(
            out / "config.json", tuple(_changes(before, after)), meaning, audited, _in_code(audited)
        )
    return Repair(None, (), "", None, _in_code(found))


def _content(whole: ConfigFields) -> bytes:
    return (json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode()


def _text(whole: ConfigFields) -> ConfigFields:
    """The part of a configuration that is about text."""
    return whole.get("text_config", whole)


def _better(after: Audit, before: Audit) -> bool:
    """Whether an audit finds less than another, and nothing that the other did not find."""
    old, new = ({str(one) for one in audit.findings} for audit in (before, after))
    return new < old


def _in_code(found: Audit) -> tuple[str, ...]:
    """What must change in code, by the catalogue."""
    codes = dict.fromkeys(one.code for one in found.records)
    return tuple(f"{code} {fault(code).name}: {fault(code).fix}" for code in codes)


def _changes(before: ConfigFields, after: ConfigFields) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name) or (name in before) != (name in after):
            old, new = (json.dumps(one[name]) if name in one else "absent" for one in (before, after))
            yield f"{name}: {old} becomes {new}"


def _audited(folder: Path, corrected: ConfigFields, again: Callable[[Path], Audit]) -> Audit | None:
    """The audit of the same files under another configuration; None where they do not load so."""
    with temporary_folder() as staged:
        for file in folder.iterdir():
            if file.name != "config.json":
                (staged / file.name).symlink_to(file.resolve())
        (staged / "config.json").write_bytes(_content(corrected))
        try:
            return again(staged)
        except SpectropeError:
            return None


def _corrections(
    before: ConfigFields, declaration: Declaration, found: Audit
) -> Iterator[tuple[str, ConfigFields]]:
    """Configurations to try, the likeliest first, each with what it does."""
    moved = _moved(before, declaration, found)
    if moved is not None:
        yield LOADS, moved
    fields, wrong = before, _wrong(before, declaration, found)
    for edit in _edits(declaration, found):
        edited = edit(copy.deepcopy(fields))
        left = _wrong(edited, declaration, found)
        if left < wrong:
            fields, wrong = edited, left
    if fields != before:
        yield APPLIES, fields


def _moved(before: ConfigFields, declaration: Declaration, found: Audit) -> ConfigFields | None:
    """The file's rotary parameters in the layout that the library reads, where it read others."""
    kinds = {layer_type(declaration, layer_name(one.module)[1]) for one in found.layers}
    wanted = [rope_parameters(declaration, kind) for kind in sorted(kinds)]
    alone = all(one == wanted[0] for one in wanted)
    double = any(contradictions(declaration, layer_name(one.module)[1]) for one in found.layers)
    if not wanted or not wanted[0] or not alone or double:
        return None
    moved = {name: value for name, value in before.items() if name not in OLD_KEYS}
    moved["rope_parameters"] = wanted[0]
    return None if wanted[0] == declaration.library.get("rope_parameters") else moved


def _wrong(fields: ConfigFields, declaration: Declaration, found: Audit) -> int:
    """In how many respects the layers differ from a configuration, by what was measured of them."""
    library = {
        name: value for name, value in declaration.library.items() if name in fields or name not in NO_ROPE
    }
    new = Declaration(library, fields)
    return sum(len(_differences(one, new, found)) for one in found.layers)


def _differences(record: LayerRecord, declaration: Declaration, found: Audit) -> Sequence[object]:
    stack, layer = layer_name(record.module)
    try:
        new = declared_layer(declaration.at(layer), stack, layer, found.length)
    except (
        SpectropeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # of one that declares none
        return (record,) * 9
    wanted: LayerEncoding = replace(
        record.declared,
        kind=new.kind,
        turning=new.turning,
        slopes=new.slopes,
        buckets=new.buckets,
        relative=new.relative,
        mask=new.mask,
        query_scale=new.query_scale,
    )
    twice = contradictions(declaration.at(layer), layer)
    alone = factor_alone(declaration.at(layer), layer) if new.turning is not None else None
    unapplied = () if alone is None else (alone,)
    return (*compare(wanted, record.effective, found.length, found.noise), *twice, *unapplied)


def _edits(declaration: Declaration, found: Audit) -> Iterator[Callable[[ConfigFields], ConfigFields]]:
    """Edits of a configuration towards what the layers apply."""
    yield _without("rope_scaling")
    yield _without(*OLD_KEYS)
    if read := declaration.library.get("rope_parameters"):
        yield lambda fields: _without(*OLD_KEYS)(fields) | {"rope_parameters": read}
    for name in (*NO_ROPE, *SUPERSEDED):
        yield _without(name)
    turning = [one.effective.turning for one in found.layers if one.effective.turning is not None]
    turned = [int(one.effective.turning is not None) for one in found.layers]
    yield lambda fields: _without(*NO_ROPE)(fields) | {"no_rope_layers": turned}
    for base in dict.fromkeys(_round(one.fit().base) for one in turning):
        yield lambda fields, base=base: _rotating(fields, {"rope_theta": base})
        plain = {"rope_type": "default", "rope_theta": base}
        yield lambda fields, plain=plain: _without(*OLD_KEYS)(fields) | {"rope_parameters": plain}
    for part in dict.fromkeys(one.fraction for one in turning):
        yield lambda fields, part=part: _fraction(fields, part)
    yield from _windows(found)


def _windows(found: Audit) -> Iterator[Callable[[ConfigFields], ConfigFields]]:
    """Edits towards the windows that layers have."""
    masks = [one.effective.mask for one in found.layers]
    sizes = {mask.size for mask in masks if mask is not None and mask.shape == "causal window"}
    types = ["sliding_attention" if mask and mask.size else "full_attention" for mask in masks]
    yield lambda fields: fields | {"sliding_window": None}
    yield lambda fields: fields | {"use_sliding_window": False}
    for size in sorted(size for size in sizes if size):
        yield lambda fields, size=size: fields | {"sliding_window": size}
    yield lambda fields: fields | {"layer_types": types}


def _without(*names: str) -> Callable[[ConfigFields], ConfigFields]:
    return lambda fields: {name: value for name, value in fields.items() if name not in names}


def _rotating(fields: ConfigFields, changes: ConfigFields) -> ConfigFields:
    """With other rotary parameters, those beside them as they were."""
    return fields | {"rope_parameters": (fields.get("rope_parameters") or {"rope_type": "default"}) | changes}


def _fraction(fields: ConfigFields, part: float) -> ConfigFields:
    """With another rotated fraction under the name that the configuration has for it."""
    name = next((name for name in FRACTIONS if name in fields), "")
    return fields | {name: part} if name else _rotating(fields, {"partial_rotary_factor": part})


def _round(base: float) -> float:
    """Four digits, as measured."""
    return float(f"{base:.4g}")
