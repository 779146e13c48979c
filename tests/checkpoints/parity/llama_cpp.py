"""A llama.cpp server on loopback: `python -m tests.checkpoints.parity.llama_cpp FILE [FIELD=VALUE ...]`.

The server is llama.cpp's own, as the package xllamacpp builds it. It prints its address, and stops when its
standard input is closed.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def write_gguf(model: Any, path: Path) -> None:
    """Write a Llama of transformers as a GGUF file in float32.

    llama.cpp turns neighbouring coordinates, so the rows of queries and keys are put in that order.
    """
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    _add_vocabulary(writer, config.vocab_size)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        kind = name.split(".")[-2]
        rows = weight.float()
        if kind in heads:
            rows = rows.unflatten(0, (heads[kind], 2, -1)).transpose(1, 2).flatten(0, 2)
        if name != "lm_head.weight":
            writer.add_tensor(_name(name), rows.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: Any, size: int) -> None:
    """Letters that no one reads: prompts are token ids."""
    import gguf

    tokens = ["<unk>", "<s>", "</s>", *(f"▁{n}" for n in range(3, size))]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.NORMAL] * (size - 3)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def _name(name: str) -> str:
    """What GGUF calls a weight of a Llama."""
    outside = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    inside = {
        "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
        "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    if name in outside:
        return outside[name]
    return f"blk.{name.split('.')[2]}.{inside[name.split('.')[-2]]}.weight"


@contextlib.contextmanager
def serving(path: Path, **fields: Any) -> Iterator[str]:
    """The address of a server of a GGUF file, whose parameters may be set to other values."""
    command = [sys.executable, "-m", "tests.checkpoints.parity.llama_cpp", str(path)]
    command += [f"{name}={value!r}" for name, value in fields.items()]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            lines = (line for line in server.stdout if line.startswith("http"))
            yield f"{next(lines).strip()}/v1"
        finally:
            server.terminate()


def main() -> None:
    """Serve."""
    import ast

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.n_ctx, parameters.n_parallel, parameters.cpuparams.n_threads = 256, 1, 1
    parameters.warmup = False
    for word in sys.argv[2:]:
        name, _, value = word.partition("=")
        setattr(parameters, name, ast.literal_eval(value))
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
