"""Special tokens within a text, where neither positions nor the mask may begin anew."""

from spectrope.checkpoints.adapters import Inputs
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.content import Text, other_outputs
from spectrope.checkpoints.audit.serving.model import ServedModel


def special_tokens(served: ServedModel) -> list[int]:
    """Tokens that begin and end texts, where configuration and vocabulary have them beside padding."""
    text = served.config.get_text_config()
    stated = [getattr(text, name, None) for name in ("bos_token_id", "eos_token_id")]
    first = [one[0] if isinstance(one, list) and one else one for one in stated]
    known = [one for one in first if isinstance(one, int) and 0 <= one < getattr(text, "vocab_size", 0)]
    of_tables = (getattr(served.model.get_submodule(table), "padding_idx", None) for table in served.tables)
    padding = {getattr(text, "pad_token_id", None), *of_tables}
    return [one for one in dict.fromkeys(known) if one not in padding]


def with_specials(served: ServedModel) -> list[Discrepancy]:
    """Special tokens within one text."""
    inputs, specials = Inputs(1, served.tokens).of(served.model), special_tokens(served)
    for name in {"input_ids", "decoder_input_ids"} & {*inputs}:
        inputs[name] = inputs[name].clone()
        for nth, token in enumerate(specials, 1):
            inputs[name][0, nth * served.prompt // (len(specials) + 1)] = token

    def run() -> None:
        served.model(**inputs)

    findings = served.consecutive(served.served(run))
    return findings or other_outputs(served, run, Text(0, slice(None)), crossing=False)
