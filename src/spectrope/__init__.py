"""A spectroscope for positional encodings in Transformers.

    >>> import spectrope as sp
    >>> found = sp.compare(["rope", "alibi"], "distance", epochs=1, n_examples=60, watch=sp.unwatched)
    >>> found.to_frame()["encoding"].to_list()
    ['rope', 'alibi']

Compare encodings: `compare` trains and ablates a decoder with each; `train` one; `experiment` and `execute` a
plan of your own. Their runs: `runs`, `load_run`, `check_runs`, `table` (one data frame), `figure`, `report`,
`load_model`.

Heads, of runs and of models alike: `ablate` measures what each costs, `with ablated(model, [(layer, head)])`
silences some, `spectrum` measures their spectra, `atlas` what their frequency bands cost. Models: `audit`
compares the encoding that a model applies with the one that it declares, and `diff` two audits. These take
Hugging Face models, folders of checkpoints, and modules of your own in `OwnModel`. `lock` keeps what a model
applies and `check` compares it later; `compatible` says whether a draft, an adapter, a merge or a conversion
fits; `watch_training` watches a model that trains, and `tracker` and `export` reach experiment trackers.

Encodings: `encodings.RoPE(head_dim=64)` is a module on plain tensors; `load_encoding` reads names and files
(`file.py:Class`), `check_laws` tries what an encoding declares, and `class Mine(sp.Encoding, name="mine")` is
one of your own. `ENCODINGS`, `TASKS` and `FIGURES` list what there is by name.

Results display themselves in terminals and notebooks, and `to_frame()` gives their tables. Each name is
imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
