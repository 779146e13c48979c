"""Every reader of the program, on what a damage has made of what it reads."""

import contextlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
from campaigns.damages import JUNK, Damage, damaged, damaged_bytes, dumped

from spectrope.cli import main as spectrope
from spectrope.cli.catalogue import command
from spectrope.cli.parsing import parse
from spectrope.core import SpectropeError, config_hash, load_object
from spectrope.store import Run, open_run

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
