"""Train a small Llama on repeated random tokens until it has induction heads, and save it as a checkpoint.

    python -m tools.induction induction-llama

Each sequence of the generated text repeats with a period of its own, so that no fixed lag predicts the
next token: the model has to look up what followed the same token before, which is what induction heads do.
Training stops once it predicts 96 % of the repeated tokens of held-out sequences. Its base is 10000; claims
27 and 28 of the study train the same model with base 100 (`spectrope claims run 27 28`).
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from spectrope.checkpoints import RepeatedTokens
from spectrope.checkpoints.repeated.trainer import untrained_model
from spectrope.core import Progress
from spectrope.lab import WEIGHTS, train
from spectrope.store import temporary_folder

EXAMPLE = RepeatedTokens(base=10_000.0)


def trained(experiment: RepeatedTokens) -> Any:
    """The model of an experiment after training."""
    with temporary_folder() as folder:
        run = train(experiment, folder, torch.device("cpu"), watch=_tell(experiment.evaluate_every))
        model = untrained_model(experiment)
        model.load_state_dict(run.read_tensors(WEIGHTS)[0])
    return model


def _tell(every: int) -> Any:
    """A progress callback that prints the accuracy after each evaluation."""

    def watch(progress: Progress) -> None:
        if progress.done and progress.done % every == 0:
            print(f"step {progress.done}: repeats {progress.accuracy:.3f}", flush=True)

    return watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where to save the checkpoint")
    folder = parser.parse_args().folder
    trained(EXAMPLE).save_pretrained(folder)
    print(f"saved in {folder}")


if __name__ == "__main__":
    main()
