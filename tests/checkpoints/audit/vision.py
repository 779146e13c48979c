"""Small random-weight vision towers of the library, built from their configuration classes."""

import importlib
import inspect
import warnings
from typing import Any

import torch
import transformers
from tests.checkpoints.audit.zoo import in_precision

# Where the tower's code lies: the name of the library's folder, by the tower's `model_type`.
HOMES = {
    "cohere_compass_vision": "cohere_compass",
    "dinov3_vit": "dinov3_vit",
    "ernie4_5_vl_moe_vision": "ernie4_5_vl_moe",
    "exaone4_5_vision": "exaone4_5",
    "gemma4_vision": "gemma4",
    "glm4v_moe_vision": "glm4v_moe",
    "glm4v_vision": "glm4v",
    "glm5_next_vision": "glm5_next",
    "glm_ocr_vision": "glm_ocr",
    "kimi_k25_vision": "kimi_k25",
    "lfm3_vl_vision": "lfm3_vl",
    "llama4_vision_model": "llama4",
    "minimax_m3_vl_vision": "minimax_m3_vl",
    "mlcd_vision_model": "mlcd",
    "muse_glimmer_vision": "muse_glimmer",
    "muse_spark_vision": "muse_spark",
    "paddleocr_vl_vision": "paddleocr_vl",
    "pixtral": "pixtral",
    "qwen2_5_omni_vision_encoder": "qwen2_5_omni",
    "qwen2_5_vl_vision": "qwen2_5_vl",
    "qwen2_vl_vision": "qwen2_vl",
    "qwen3_5_moe_vision": "qwen3_5_moe",
    "qwen3_5_vision": "qwen3_5",
    "qwen3_omni_moe_vision_encoder": "qwen3_omni_moe",
    "qwen3_vl_moe_vision": "qwen3_vl_moe",
    "qwen3_vl_vision": "qwen3_vl",
    "qwen4_exp_vision": "qwen4_exp",
    "sam3_vit_model": "sam3",
    "sapiens2": "sapiens2",
    "step3p5_vision": "step3p7",
    "video_llama_3_vision": "video_llama_3",
}
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "embed_dim", "intermediate_size"), 64),
    **dict.fromkeys(("depth", "num_hidden_layers", "num_layers"), 2),
    **dict.fromkeys(("num_heads", "num_attention_heads"), 4),
    "num_key_value_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "image_size": 64,
    "num_position_embeddings": 256,
    "deepstack_visual_indexes": [0],
    "num_register_tokens": 2,
    "window_size": 32,
    "fullatt_block_indexes": [1],
    "mlp_ratio": 2,
    "head_dim": 16,
    "pos_emb_height": 8,
    "pos_emb_width": 8,
    "pretrain_image_size": 32,
    "global_attn_indexes": [1],
}
# Where a name has another meaning, or its size depends on others.
OWN: dict[str, dict[str, Any]] = {
    "lfm3_vl_vision": {"layer_types": ["full_attention", "full_attention", "conv"], "num_hidden_layers": 3},
    "llama4_vision_model": {"intermediate_size": 256},  # of patches that are shuffled together
    "muse_glimmer_vision": {"layer_types": ["window_attention", "full_attention"]},
    "muse_spark_vision": {"layer_types": ["window_attention", "full_attention"]},
    "qwen2_vl_vision": {"hidden_size": 32},  # of the language model
    "sam3_vit_model": {"window_size": 4},  # in patches
}


def tower_class(family: str) -> Any:
    """The class of a family's tower, which takes pixels."""
    home = importlib.import_module(f"transformers.models.{HOMES[family]}.modeling_{HOMES[family]}")
    classes = (one for one in vars(home).values() if inspect.isclass(one) and one.__module__ == home.__name__)
    for one in classes:
        config = getattr(one, "config_class", None)
        if issubclass(one, transformers.PreTrainedModel) and getattr(config, "model_type", "") == family:
            taken = list(inspect.signature(one.forward).parameters)[1:3]
            if "pixel_values" in taken or "grid_thw" in taken:
                return one
    raise LookupError(family)


def small_tower(family: str, dtype: str = "float32", **changes: Any) -> torch.nn.Module:
    """A tower of two layers with random weights, in evaluation mode."""
    cls = tower_class(family)
    known = cls.config_class().to_dict()
    fields = {name: size for name, size in SIZES.items() if name in known}
    fields = {name: float(n) if isinstance(known[name], float) else n for name, n in fields.items()}
    fields |= OWN.get(family, {}) | changes
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(cls.config_class(**fields)).eval()
    for name, weights in model.named_parameters():
        if name.endswith("norm.weight"):  # ones would hide on which side of a rotation they lie
            weights.data.uniform_(0.5, 1.5)
    return in_precision(model, dtype)
