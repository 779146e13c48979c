"""Each tracker through its own client: offline, what it keeps is read back, and no secret is written."""

import csv
import json
import math
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import spectrope as sp
from spectrope.core import ConfigError, StoreError, UnknownNameError, UnsupportedError
from spectrope.store import Run

SECRET = "0123456789abcdef0123456789abcdef01234567"
SCRIPT = """
import json, socket, sys

connect, resolve = socket.socket.connect, socket.getaddrinfo
LOOPBACK = ("127.0.0.1", "localhost", "::1", None)


def guarded(self, address):
    if self.family != socket.AF_UNIX and address[0] not in LOOPBACK:
        sys.exit(f"connects to {address}")
    return connect(self, address)


def guarded_names(host, *rest, **more):
    if host not in LOOPBACK:
        sys.exit(f"looks up {host}")
    return resolve(host, *rest, **more)


socket.socket.connect, socket.getaddrinfo = guarded, guarded_names
from spectrope.checkpoints.trackers import tracker

run = tracker(sys.argv[1], sys.argv[2], project="mine", run="first", config={"rate": 0.5})
run.log({"layer_0/head_1/reach": 3.5, "loss": 2.0}, step=0)
run.log({"layer_0/head_1/reach": 4.5, "loss": 1.0}, step=20)
run.close()
"""


def kept(name, folder):
    """What a tracker leaves in its folder, written by a process that may not leave the machine."""
    environment = os.environ | {"WANDB_API_KEY": SECRET, "MLFLOW_TRACKING_TOKEN": SECRET, "HF_TOKEN": SECRET}
    environment |= {f"TRACKIO_{what}_URL": "http://192.0.2.1:9" for what in ("SERVER", "WEBHOOK")}
    command = [sys.executable, "-c", SCRIPT, name, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [path for path in Path(folder).rglob("*") if path.is_file()]


@pytest.mark.parametrize("named", [{"project": "../out"}, {"run": "/tmp/out"}, {"run": "a/b"}, {"run": ""}])
def test_names_stay_in_the_folder(tmp_path, named):
    for name in ("tensorboard", "csv"):
        with pytest.raises(ConfigError, match="must be a plain name"):
            sp.tracker(name, tmp_path / "inside", **named)
    assert not list(tmp_path.rglob("*"))


def test_names_that_are_no_files_may_be_paths(tmp_path):
    sp.tracker("mlflow", tmp_path, project="/Users/me/experiment", run="sweep/rate=0.1").close()
    assert "/Users/me/experiment" in "".join(path.read_text() for path in tmp_path.rglob("meta.yaml"))


def test_a_second_run_of_tensorboard_keeps_the_first(tmp_path):
    for rate in (0.5, 0.25):
        sp.tracker("tensorboard", tmp_path, config={"rate": rate}).close()
    places = sorted(path.parent.name for path in tmp_path.rglob("config.json"))
    assert places == ["run", "run-2"]
    assert json.loads((tmp_path / "spectrope" / "run" / "config.json").read_text()) == {"rate": 0.5}


def test_trackio_is_not_sent_to_a_folder_that_it_does_not_write(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "set"))
    script = (
        "import sys, spectrope as sp\n"
        "try:\n    sp.tracker('trackio', sys.argv[1])\nexcept Exception as error:\n    print(error)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "asked")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"trackio writes to {tmp_path / 'set'} in this process, and not to" in done.stdout


def test_a_run_of_weights_and_biases_that_is_open_stays_open(tmp_path):
    script = (
        "import sys, wandb, spectrope as sp\n"
        "mine = wandb.init(project='mine', mode='offline', dir=sys.argv[1])\n"
        "run = sp.tracker('wandb', sys.argv[1], project='other')\n"
        "assert (run.logged.id != mine.id, run.logged.project) == (True, 'other')\n"
        "run.close()\n"
        "mine.log({'loss': 1.0})\n"
        "mine.finish()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    environment = os.environ | {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert len(list(tmp_path.rglob("run-*.wandb"))) == 2


def csv_numbers(folder):
    (path,) = folder.glob("*.csv")
    with path.open(newline="") as file:
        return [(int(r["step"]), r["name"], float(r["value"])) for r in csv.DictReader(file)]


def tensorboard_numbers(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "mine" / "first"))
    events.Reload()
    names = events.Tags()["tensors"]
    points = [
        (one.step, name, one.tensor_proto.float_val[0]) for name in names for one in events.Tensors(name)
    ]
    assert json.loads((folder / "mine" / "first" / "config.json").read_text()) == {"rate": 0.5}
    return points


def mlflow_numbers(folder):
    [metrics] = (folder / "mlruns").glob("[0-9]*/*/metrics")
    points = []
    for path in filter(Path.is_file, metrics.rglob("*")):
        for line in path.read_text().splitlines():
            _, value, step = line.split()[:3]
            points.append((int(step), path.relative_to(metrics).as_posix(), float(value)))
    assert (metrics.parent / "params" / "rate").read_text() == "0.5"
    return points


def trackio_numbers(folder):
    with sqlite3.connect(folder / "mine.db") as data:
        rows = data.execute("select step, metrics from metrics where run_name = 'first'").fetchall()
    data.close()
    return [(step, name, value) for step, text in rows for name, value in json.loads(text).items()]


def wandb_records(content):
    """The records of a file of Weights & Biases: the log format of LevelDB after a header of 7 bytes."""
    at, record = 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        record += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield record
            record = b""


def wandb_numbers(folder):
    from wandb.proto import wandb_internal_pb2

    [path] = folder.rglob("run-*.wandb")
    points = []
    for data in wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        step = record.history.step.num
        named = [(one.key or "/".join(one.nested_key), one.value_json) for one in record.history.item]
        points += [(step, name, json.loads(text)) for name, text in named if not name.startswith("_")]
    return points


READERS = {
    "csv": csv_numbers,
    "tensorboard": tensorboard_numbers,
    "mlflow": mlflow_numbers,
    "trackio": trackio_numbers,
    "wandb": wandb_numbers,
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", READERS)
def test_numbers_are_kept_offline_and_no_secret_is_written(name, tmp_path):
    files = kept(name, tmp_path / "tracking")
    assert sorted(READERS[name](tmp_path / "tracking")) == [
        (0, "layer_0/head_1/reach", 3.5),
        (0, "loss", 2.0),
        (20, "layer_0/head_1/reach", 4.5),
        (20, "loss", 1.0),
    ]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_every_tracker_is_tested():
    from spectrope.checkpoints.trackers import TRACKERS

    assert set(TRACKERS) == set(READERS)


def test_values_that_are_not_finite_are_told_and_the_tracker_is_closed(trained_once, tmp_path, recwarn):
    [run] = sp.runs(trained_once)
    broken = Run(shutil.copytree(run.path, tmp_path / "runs" / run.id))
    frame = broken.frame("metrics")
    broken.write_frame("metrics", frame.with_columns(pl.lit(math.nan).alias("loss")))
    broken.finish({**run.manifest, "test_loss": math.nan})
    tracker = sp.tracker("csv", tmp_path / "numbers", run="diverged")
    sp.export(broken, tracker)
    assert tracker.file.closed
    values = pl.read_csv(tmp_path / "numbers" / "diverged.csv")
    assert values.filter(pl.col("name") == "final/diverged")["value"].to_list() == [1.0]
    assert not values["name"].str.contains("loss").any()
    assert f"run {run.id}: values that are not finite were not sent." in str(recwarn[-1].message)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot write .*file"):
        sp.tracker("csv", tmp_path / "file")


def test_a_run_is_exported(trained_once, tmp_path):
    [run] = sp.runs(trained_once)
    sp.export(run, sp.tracker("csv", tmp_path / "numbers", run=run.id, config=run.config))
    told = csv_numbers(tmp_path / "numbers")
    row = run.frame("metrics").row(0, named=True)
    assert (row["step"], f"{row['split']}/loss", pytest.approx(row["loss"])) in told
    assert [name for _, name, _ in told if name.startswith("final/")]


def test_a_tracker_that_writes_files_alone_refuses_an_address(tmp_path):
    with pytest.raises(ConfigError, match="tracker 'csv' writes files alone; got url='http://localhost'"):
        sp.tracker("csv", tmp_path, url="http://localhost")


def test_unknown_trackers_and_arguments_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown tracker 'cvs'; did you mean csv"):
        sp.tracker("cvs", tmp_path)
    with pytest.raises(
        ConfigError, match="tracker has no argument 'key'; it takes config, project, run, url"
    ):
        sp.tracker("csv", tmp_path, key=SECRET)


def test_a_missing_client_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        UnsupportedError, match=r"needs wandb, which is not installed; pip install 'spectrope"
    ):
        sp.tracker("wandb", tmp_path)


def test_a_file_of_an_earlier_run_is_kept(tmp_path):
    for loss in (1.0, 2.0):
        lines = sp.tracker("csv", tmp_path, config={"rate": loss})
        lines.log({"loss": loss}, step=0)
        lines.close()
    assert "0,loss,1.0" in (tmp_path / "metrics.csv").read_text()
    assert "0,loss,2.0" in (tmp_path / "metrics-2.csv").read_text()
    assert json.loads((tmp_path / "metrics-2.json").read_text()) == {"rate": 2.0}


def test_a_run_names_a_file_within_the_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"run names files of the tracker, so .* got '\.\./other'"):
        sp.tracker("csv", tmp_path / "numbers", run="../other")
