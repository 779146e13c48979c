"""Fuzzing of every reader: files and arguments that are damaged in ways that Hypothesis chooses.

`python -m campaigns.fuzz` damages what each reader reads, with digests and checksums that fit the damage, so
that it is read on. A reader may accept or refuse; a traceback, more than ten seconds, or a score out of its
range in what it accepts is a fault. Damages that found a fault are kept in `campaigns/corpus/`, and tried
first.
"""

import argparse
import contextlib
import copy
import io
import json
import math
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
from campaigns.faults import scratch
from campaigns.harness import store
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from spectrope.cli import main as spectrope
from spectrope.cli.catalogue import command
from spectrope.cli.parsing import parse
from spectrope.core import SpectropeError, config_hash, load_object
from spectrope.store import Run, open_run

CORPUS = Path(__file__).parent / "corpus"
LIMIT = 10  # Processor seconds that a reader may take.
LONGEST = 120  # Seconds, on a machine that is busy with other work.
CASES = {  # Of a whole campaign.
    "configuration": 2500,
    "manifest": 2500,
    "row": 1500,
    "rows as bytes": 1500,
    "table": 400,
    "table as bytes": 400,
    "tensors as bytes": 300,
    "checkpoint": 200,
    "Hugging Face configuration": 120,
    "recipe": 800,
    "costs": 500,
    "own file": 200,
    "command line": 200,
}
WORDS = ["", "x", "nan", "1e999", "-1", "0", "rope", "\ud800", "\0", "a" * 5000, "../x", "<b>", "1" * 5000]
JUNK = [None, True, False, -1, 0, 1, 7, 0.5, 17.5, 1e308, math.inf, math.nan, 10**400, -(10**30), *WORDS]
JUNK += [[], {}, [[]], {"": {}}, [None] * 3, {"kind": "rope"}, {"kind": 7}, "[" * 3000]
LINE = ("train", "--encoding", "rope", "--epochs", "1", "--seed", "0", "--set", "n_heads=2", "--json")
OWN = b'''from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.encodings.base import EncodingConfig, LagBias


class Mine(LagBias, name="mine"):
    """Lowers logits by the logarithm of the lag."""

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes."""

        n_heads: int = 8

    def lag_bias(self, lag: Tensor) -> Tensor:
        return -torch.log1p(lag.abs())[..., None].expand(*lag.shape, self.config.n_heads)
'''
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
HOW = ("set", "delete", "add", "wrap", "nest", "text")


class HangError(Exception):
    """A reader has taken too long."""


@dataclass(frozen=True)
class Damage:
    """One damage.

    Args:
        at: Where, modulo the number of places.
        how: What is done there.
        junk: What is put there: a place in `JUNK`.
    """

    at: int
    how: str
    junk: int


DAMAGES = st.lists(
    st.builds(
        Damage,
        at=st.integers(0, 99_999),
        how=st.sampled_from(HOW),
        junk=st.integers(0, len(JUNK) - 1),
    ),
    min_size=1,
    max_size=3,
)


def damaged(value: Any, damages: list[Damage]) -> Any:
    """A JSON value with some of its parts changed."""
    root = {"": json.loads(json.dumps(value))}
    for one in damages:
        places = list(_places(root))
        holder, key = places[one.at % len(places)]
        junk = copy.deepcopy(JUNK[one.junk])  # A container that is damaged again must not hold itself.
        if one.how == "delete":
            del holder[key]
        elif one.how == "add" and isinstance(holder[key], dict):
            holder[key][f"more{one.junk}"] = junk
        elif one.how == "wrap":
            holder[key] = [holder[key]]
        elif one.how == "text":
            with contextlib.suppress(RecursionError):
                holder[key] = str(holder[key])
        elif one.how == "nest":
            for _ in range(2000):
                holder[key] = [holder[key]]
        else:
            holder[key] = junk
        if "" not in root:
            return None
    return root[""]


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value, without recursion, which a deep one would exhaust."""
    waiting = [holder]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            yield one, key
            if isinstance(one[key], dict | list):
                waiting.append(one[key])


def damaged_bytes(content: bytes, damages: list[Damage]) -> bytes:
    """Bytes with some of them changed."""
    for one in damages:
        at = one.at % max(1, len(content))
        rest = content[at + 1 :]
        if one.how == "delete":
            content = content[:at] + content[at + 1 + one.junk :]
        elif one.how == "wrap":
            content = content[:at]
        elif one.how == "text":
            content = content[:at] + content[:at] + rest
        elif one.how == "add":
            content = content[:at] + bytes([one.junk]) * 8 + content[at:]
        elif one.how == "nest":
            content = content[:at] + b"\xff" * 8 + content[at + 8 :]
        else:
            content = content[:at] + bytes([content[at] ^ (1 << one.junk % 8)] if content else b"x") + rest
    return content


def dumped(value: Any) -> bytes:
    """JSON as Python writes it, numbers that are none included; empty where it nests too deeply."""
    try:
        return json.dumps(value).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[" * 100_000


class Readers:
    """What is read, in a folder of its own: a run, rows of it, a checkpoint and other files.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        from campaigns.commands import SMALL, TINY, checkpoint

        from spectrope.front.runs import listing, table
        from spectrope.lab import load_model
        from spectrope.study.rows import StudyRow

        self.listing, self.table, self.load_model, self.row = listing, table, load_model, StudyRow
        self.folder = folder
        os.chdir(folder)
        with quiet():
            assert spectrope(("train", *SMALL, *TINY)) == 0
            (self.whole,) = (folder / "runs").iterdir()
            assert spectrope(("ablate", self.whole.name)) == 0
        checkpoint(folder)
        run = Run(self.whole)
        self.config = json.loads((self.whole / "config.json").read_text())
        self.manifest, self.record = run.manifest, StudyRow.of(run).record()
        self.hf = json.loads((folder / "model" / "config.json").read_text())
        self.number = 0

    def _copy(self) -> Path:
        """The run without digests, as version 0.1.0 wrote runs, alone in a new folder."""
        self.number += 1
        target = self.folder / f"at{self.number % 2}"
        shutil.rmtree(target, ignore_errors=True)
        unverified = shutil.ignore_patterns("*.sha256")
        return shutil.copytree(self.whole, target / self.whole.name, ignore=unverified)

    def _look(self, path: Path) -> None:
        """What `runs`, `sp.table` and a prompt show of a run, and its row in a study."""
        shown, _ = self.listing(path.parent)
        for row in shown.to_dicts():
            scores = (row["train"], row["test"], row["ceiling"])
            assert all(score is None or 0 <= score <= 100 for score in scores), f"accepted {row}"
            assert row["seconds"] is None or 0 <= row["seconds"] < math.inf, f"accepted {row}"
        run = Run(path)
        assert "\n" not in repr(run)
        run._repr_html_()
        with contextlib.suppress(SpectropeError):
            self.table([run])
        self.row.of(run)

    def _load(self, path: Path) -> None:
        """The model of every tenth run: most of the time would go there."""
        if self.number % 10 == 0:
            self.load_model(Run(path), _cpu())

    def configuration(self, damages: list[Damage]) -> None:
        """The configuration of a run, whose folder is named to fit."""
        path, identity = self._copy(), damaged(self.config, damages)
        (path / "config.json").write_bytes(dumped(identity))
        with contextlib.suppress(Exception):
            name = config_hash(identity["config"], identity.get("data_version"), 1)
            path = path.rename(path.with_name(name))
        self._look(path)
        self._load(path)

    def manifest_(self, damages: list[Damage]) -> None:
        """The manifest of a run."""
        path = self._copy()
        (path / "manifest.json").write_bytes(dumped(damaged(self.manifest, damages)))
        self._look(path)
        self._load(path)

    def row_(self, damages: list[Damage]) -> None:
        """A row of a study, with a checksum that fits."""
        from spectrope.study.rows import StudyRows

        record = damaged(self.record, damages)
        if not isinstance(record, dict):
            record = {"": record}
        with contextlib.suppress(Exception):
            record["check"] = config_hash(record)
        path = self.folder / "mini.jsonl"
        path.write_bytes(dumped(record) + b"\n")
        rows = StudyRows.load(path)
        for complaint in rows.complaints:
            assert "\n" not in str(complaint)
            assert len(str(complaint)) < 1000, "a complaint of more than a thousand characters"
        for row in rows:
            accuracy = row.facts["test_accuracy"]
            assert accuracy is None or 0 <= accuracy <= 1, f"accepted {accuracy}"

    def rows(self, damages: list[Damage]) -> None:
        """A file of rows as bytes."""
        from spectrope.study.rows import StudyRows

        line = dumped({**self.record, "check": config_hash(self.record)}) + b"\n"
        path = self.folder / "mini.jsonl"
        path.write_bytes(damaged_bytes(line + line, damages))
        assert len(StudyRows.load(path)) <= 1

    def table_(self, damages: list[Damage]) -> None:
        """A table of a run, with other columns."""
        path = self._copy()
        whole = pl.read_parquet(path / "ablation.parquet")
        shallow = [replace(one, how="wrap" if one.how == "nest" else one.how) for one in damages]
        columns = damaged(whole.to_dict(as_series=False), shallow)  # Polars takes minutes to nest deeply.
        try:
            changed = pl.DataFrame(columns, strict=False)
            changed.write_parquet(path / "ablation.parquet", metadata={"spectrope.counts_from": "0"})
        except Exception:
            return  # No table holds this.
        self._look(path)

    def table_bytes(self, damages: list[Damage]) -> None:
        """A table of a run as bytes."""
        path = self._copy()
        file = path / "ablation.parquet"
        file.write_bytes(damaged_bytes(file.read_bytes(), damages))
        self._look(path)

    def tensors(self, damages: list[Damage]) -> None:
        """The weights of a run as bytes, the header twice as often."""
        path = self._copy()
        file = path / "weights.safetensors"
        content = file.read_bytes()
        head = 8 + int.from_bytes(content[:8], "little")
        if damages[0].at % 2:
            content = damaged_bytes(content[:head], damages) + content[head:]
        else:
            content = damaged_bytes(content, damages)
        file.write_bytes(content)
        model = self.load_model(Run(path), _cpu())
        assert all(p.isfinite().all() for p in model.parameters()), "accepted weights that are not finite"

    def checkpoint(self, damages: list[Damage]) -> None:
        """The progress in a checkpoint."""
        import torch

        from spectrope.lab import experiment_of
        from spectrope.lab.training.loop import Trainer

        one = experiment_of(Run(self.whole))
        run = open_run(self.folder / "begun", self.config["config"], self.config["data_version"])
        if not hasattr(self, "state"):
            with quiet(), contextlib.suppress(SpectropeError):
                Trainer(one, run, torch.device("cpu")).fit(stop=lambda: True)
            self.state = run.read_tensors("checkpoint")
        tensors, metadata = self.state
        progress = damaged(json.loads(metadata["progress"]), damages)
        text = dumped(progress).decode("utf-8", "replace")
        run.write_tensors("checkpoint", tensors, {"progress": text})
        trainer = Trainer(one, run, torch.device("cpu"))
        assert trainer.state.step in (0, trainer.state.step), "no step"
        assert 0 <= trainer.state.seconds < math.inf, f"accepted {trainer.state.seconds} seconds"

    def hugging_face(self, damages: list[Damage]) -> None:
        """The configuration of a checkpoint, which `audit` reads."""
        file = self.folder / "model" / "config.json"
        file.write_bytes(dumped(damaged(self.hf, damages)))
        self._command("audit", "model", "--length", "8")

    def recipe(self, damages: list[Damage]) -> None:
        """A recipe of `train`."""
        from spectrope.cli.commands.train import read_recipe

        path = self.folder / "recipe.json"
        path.write_bytes(dumped(damaged(self.config, damages)))
        read_recipe(path)

    def costs(self, damages: list[Damage]) -> None:
        """A file of costs of `attention plan`."""
        from spectrope.fast.costs import DEFAULT, read_costs

        path = self.folder / "costs.json"
        path.write_bytes(dumped(damaged(asdict(DEFAULT), damages)))
        read_costs(path)

    def own(self, damages: list[Damage]) -> None:
        """A file with an encoding, of which parts are missing."""
        self.number += 1
        path = self.folder / f"own{self.number}.py"
        cut = [one for one in damages if one.how in ("delete", "wrap")] or [Damage(damages[0].at, "wrap", 0)]
        path.write_bytes(damaged_bytes(OWN, cut))
        with quiet():
            load_object(f"{path}:Mine")

    def line(self, damages: list[Damage]) -> None:
        """A command line, which is read and not carried out."""
        line = list(LINE)
        for one in damages:
            at, junk = one.at % len(line), str(JUNK[one.junk])
            line = {
                "delete": [*line[:at], *line[at + 1 :]],
                "add": [*line[:at], junk, *line[at:]],
                "wrap": [*line[:at], line[at] + junk, *line[at + 1 :]],
                "nest": [*line[:at], "--" + junk, *line[at:]],
            }.get(one.how, [*line[:at], junk, *line[at + 1 :]]) or ["train"]
        try:
            parse(command("train"), line[1:])
        except SpectropeError as error:
            if "\n" in str(error):
                raise AssertionError("a message of several lines") from error
            raise

    def _command(self, *words: str) -> None:
        """A command, whose mistakes are one line."""
        with quiet() as told:
            code = spectrope(words)
        err = told.getvalue()
        assert code in (0, 1, 2, 3), f"exit code {code}: {err[-600:]}"
        assert code != 2 or err.count("\n") == 1, f"more than one line: {err[:300]}"

    def all(self) -> dict[str, Callable[[list[Damage]], None]]:
        """The readers, by the names in `CASES`."""
        return {
            "configuration": self.configuration,
            "manifest": self.manifest_,
            "row": self.row_,
            "rows as bytes": self.rows,
            "table": self.table_,
            "table as bytes": self.table_bytes,
            "tensors as bytes": self.tensors,
            "checkpoint": self.checkpoint,
            "Hugging Face configuration": self.hugging_face,
            "recipe": self.recipe,
            "costs": self.costs,
            "own file": self.own,
            "command line": self.line,
        }


def _cpu() -> Any:
    import torch

    return torch.device("cpu")


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Print nothing; what goes to standard error is kept."""
    from spectrope.console import terminal

    told = io.StringIO()
    consoles = (terminal.console, terminal.errors)
    before = [one.file for one in consoles]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        terminal.console.file, terminal.errors.file = io.StringIO(), told
        try:
            yield told
        finally:
            for one, file in zip(consoles, before, strict=True):
                one.file = file


@dataclass
class Found:
    """What came of the cases of one reader."""

    cases: int = 0
    refused: int = 0
    accepted: int = 0
    slowest: float = 0.0
    faults: dict[str, list[Damage]] = field(default_factory=dict)

    def try_one(self, read: Callable[[list[Damage]], None], damages: list[Damage]) -> None:
        """Try one case, and keep the first damage of each kind of fault."""
        self.cases += 1
        begun = time.process_time()
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, _hang)
        signal.alarm(LONGEST)
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(damages)
            self.accepted += 1
        except SpectropeError:
            self.refused += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.faults.setdefault(_signature(error), damages)
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.slowest = max(self.slowest, time.process_time() - begun)


def _hang(number: int, frame: object) -> None:
    raise HangError(f"more than {LIMIT} s")


def _signature(error: BaseException) -> str:
    """The kind of an error, and the last line of the program that raised it."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "spectrope" in one.filename]
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    text = str(error).splitlines()[0][:160] if str(error) else ""
    return f"{type(error).__name__}{place}: {text}" if not frames else f"{type(error).__name__}{place}"


def corpus(name: str) -> list[list[Damage]]:
    """Damages that once found a fault."""
    path = CORPUS / f"{name.replace(' ', '-').lower()}.json"
    return [[Damage(**one) for one in case] for case in json.loads(path.read_text())] if path.exists() else []


def keep(name: str, cases: list[list[Damage]]) -> None:
    """Add damages to the corpus."""
    CORPUS.mkdir(exist_ok=True)
    path = CORPUS / f"{name.replace(' ', '-').lower()}.json"
    known = [[asdict(one) for one in case] for case in corpus(name)]
    known += [case for one in cases if (case := [asdict(damage) for damage in one]) not in known]
    path.write_text(json.dumps(known, indent=1) + "\n")


def fuzz(name: str, read: Callable[[list[Damage]], None], cases: int, number: int) -> Found:
    """Try the corpus of a reader and so many new cases."""
    found = Found()
    for damages in corpus(name):
        found.try_one(read, damages)

    @seed(number)
    @settings(max_examples=cases, database=None, deadline=None, suppress_health_check=SLOW)
    @given(DAMAGES)
    def each(damages: list[Damage]) -> None:
        found.try_one(read, damages)

    each()
    return found


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--readers", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--share", type=float, default=1.0, help="of the cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unstored", action="store_true", help="keep neither figures nor corpus")
    asked = parser.parse_args()
    place, faults = scratch(), 0
    try:
        readers = Readers(place).all()
        for name in asked.readers:
            begun = time.monotonic()
            found = fuzz(name, readers[name], max(1, round(asked.share * CASES[name])), asked.seed)
            print(
                f"{name}: {found.cases} cases, {found.accepted} accepted, {len(found.faults)} faults",
                flush=True,
            )
            for fault, damages in found.faults.items():
                print(f"  {fault}  {damages}", flush=True)
            if not asked.unstored and found.faults:
                keep(name, list(found.faults.values()))
            figures = {
                "seed": asked.seed,
                "cases": found.cases,
                "accepted": found.accepted,
                "refused": found.refused,
                "slowest_cpu_seconds": round(found.slowest, 2),
                "faults": list(found.faults),
                "seconds": round(time.monotonic() - begun),
            }
            store("fuzz", name, figures, keep=not asked.unstored)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
