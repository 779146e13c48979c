"""A spectroscope for positional encodings in Transformers.

    >>> import spectrope as sp
    >>> found = sp.compare(["rope", "alibi"], "distance", epochs=1, n_examples=60, watch=sp.unwatched)
    >>> found.to_frame()["encoding"].to_list()
    ['rope', 'alibi']

Compare encodings: `compare` trains and ablates a decoder with each encoding, `train` trains a single
decoder, and `experiment` and `execute` run your own plan. To work with runs, use `runs`, `load_run`,
`check_runs`, `table` (one data frame), `figure`, `report` and `load_model`.

Analyse heads of runs or models: `ablate` measures the effect of each head, `with ablated(model, [(layer,
head)])` silences some heads, `spectrum` measures their spectra, and `atlas` the effect of their frequency
bands. Analyse models: `audit` compares the encoding that a model applies with the declared one, and `diff`
compares two audits. These functions accept Hugging Face models, folders of checkpoints, and your own
modules wrapped in `OwnModel`. `lock` records what a model applies, and `check` compares a model with this
record; `compatible` says whether a draft, an adapter, a merge or a conversion fits; `watch_training`
monitors a model during training; and `tracker` and `export` send results to experiment trackers.

Encodings: `encodings.RoPE(head_dim=64)` is a module on plain tensors; `load_encoding` reads names and files
(`file.py:Class`), `check_laws` tests the declared laws of an encoding, and `class Mine(sp.Encoding,
name="mine")` defines your own. `ENCODINGS`, `TASKS` and `FIGURES` list the registered names.

Results display themselves in terminals and notebooks, and `to_frame()` gives their tables. Each name is
imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
