"""Catalogue of faults: a stable code for every kind of difference that an audit can find."""

from dataclasses import dataclass

from spectrope.core import UnknownNameError

HUB = "https://github.com/"


@dataclass(frozen=True)
class Fault:
    """One kind of finding.

    Args:
        code: Stable code, never reused for another fault.
        name: Short description of the fault.
        respects: What findings of this kind are about, as `Discrepancy.what` begins.
        symptom: What the audit reports.
        cause: How it arises.
        fix: How to correct it.
        by_length: How its effect depends on the length of the text.
        threads: Public reports of this fault, or of the same mistake elsewhere.
    """

    code: str
    name: str
    respects: tuple[str, ...]
    symptom: str
    cause: str
    fix: str
    by_length: str
    threads: tuple[str, ...] = ()

    def __str__(self) -> str:
        sections = {
            "Symptom": self.symptom,
            "How it arises": self.cause,
            "Effect by length": self.by_length,
            "Fix": self.fix,
        }
        text = "\n\n".join(f"{title}: {body}" for title, body in sections.items())
        threads = "".join(f"\n  {HUB}{thread}" for thread in self.threads)
        return f"{self.code} {self.name}\n\n{text}" + (f"\n\nPublic threads:{threads}" if threads else "")


FAULTS = (
    Fault(
        "SPE101",
        "base differs",
        ("base",),
        "The frequencies of all pairs are in geometric progression, but with another base than the declared "
        "one.",
        "The loader does not read `rope_theta` and takes its default of 10000, or a table is reused from a "
        "cache whose key leaves out the base.",
        "Pass the declared base to the rotary module; key cached tables by it.",
        "Fast pairs barely change, so short texts look plausible; the error of a pair's angle grows in "
        "proportion to the distance.",
        (
            "huggingface/transformers/issues/27226",
            "sgl-project/SpecForge/issues/265",
            "huggingface/candle/pull/3746",
            "lyogavin/airllm/pull/369",
            "radixark/miles/issues/742",
            "princeton-nlp/LLM-Shearing/issues/66",
            "THUDM/slime/pull/1720",
            "google/gemma.cpp/issues/986",
            "Lightning-AI/litgpt/pull/1993",
            "onnxruntime/mobius/pull/293",
        ),
    ),
    Fault(
        "SPE102",
        "scaling differs",
        ("scaling", "frequencies"),
        "Some or all pairs rotate at frequencies other than those of the declared schedule.",
        "The scaling is ignored, replaced by another kind, or built with other parameters, such as swapped "
        "ramp ends or another original length.",
        "Build the frequencies from every field of the declared `rope_parameters`.",
        "As for a wrong base: the error of a pair's angle grows in proportion to the distance.",
        (
            "vllm-project/vllm/pull/27431",
            "allenai/OLMo-core/pull/330",
            "Open-Athena/MarinFold/pull/198",
            "antonellof/ferrox/issues/39",
            "lablup/mlxcel/issues/1340",
            "ollama/ollama/pull/13452",
            "Blaizzy/mlx-vlm/pull/1710",
            "trholding/llama2.c/pull/14",
            "felafax/felafax/issues/59",
            "huggingface/text-generation-inference/issues/816",
            "huggingface/transformers/issues/45902",
            "mlc-ai/mlc-llm/pull/3375",
            "unslothai/unsloth/pull/10681",
            "huggingface/transformers/issues/25681",
        ),
    ),
    Fault(
        "SPE103",
        "attention factor differs",
        ("attention factor", "factors of"),
        "Rotated coordinates, or some pairs of them, are multiplied by another factor than the declared one.",
        "YaRN's or LongRoPE's factor is left out, applied twice, or computed from other fields.",
        "Apply the declared factor once to queries and once to keys, or its square to the logits.",
        "Independent of the distance: all logits of rotated coordinates are too large or too small.",
        (
            "sgl-project/sglang/pull/33558",
            "turboderp-org/exllamav3/issues/259",
            "ml-explore/mlx-lm/pull/1507",
            "Avarok-Cybersecurity/atlas/pull/342",
            "ggml-org/llama.cpp/pull/17945",
            "lablup/mlxcel/issues/1358",
        ),
    ),
    Fault(
        "SPE104",
        "pairing differs",
        ("pairing",),
        "Coordinates are paired in the other layout: adjacent coordinates instead of halves, or vice versa.",
        "Code for one layout runs with weights that are laid out for the other.",
        "Permute the rows of the query and key projections, or use the other layout's code.",
        "From the first few tokens on.",
        (
            "karpathy/nanochat/issues/264",
            "huggingface/transformers/pull/47403",
            "labscommunity/cascadia/pull/69",
            "ooples/AiDotNet/pull/2074",
            "warpfront/hipfire/pull/241",
            "huggingface/transformers/issues/39687",
            "huggingface/nanotron/pull/427",
            "vllm-project/vllm/pull/28968",
            "huggingface/transformers/pull/46842",
        ),
    ),
    Fault(
        "SPE105",
        "rotated part differs",
        ("rotated fraction",),
        "More, fewer or other coordinates are rotated than declared.",
        "`partial_rotary_factor` or `rotary_pct` is not read, or the last coordinates turn instead of the "
        "first.",
        "Rotate only the declared coordinates.",
        "From the first few tokens on.",
        (
            "AI-Hypercomputer/maxtext/issues/4616",
            "vllm-project/vllm/pull/30384",
            "ml-explore/mlx-lm/pull/1698",
            "vllm-project/vllm/pull/43770",
            "InternLM/lmdeploy/pull/3861",
        ),
    ),
    Fault(
        "SPE106",
        "angles are not proportional to position",
        ("angles",),
        "The phase of at least one pair is not linear in the position.",
        "Angles are computed in low precision, or positions repeat.",
        "Compute positions and angles in float32.",
        "Grows with the position; in bfloat16, neighbouring positions begin to coincide above 256.",
        (
            "EleutherAI/gpt-neox/issues/1003",
            "huggingface/transformers/issues/29496",
            "huggingface/transformers/pull/29285",
            "NVIDIA/Megatron-LM/issues/744",
            "KellerJordan/modded-nanogpt/issues/39",
        ),
    ),
    Fault(
        "SPE107",
        "direction of rotation differs",
        ("sense of rotation",),
        "Pairs rotate in the opposite direction, or not all in the same direction.",
        "A sign of the sine is lost in a port.",
        "Restore the sign. If queries and keys are both rotated the wrong way, kernels are mirrored in the "
        "lag.",
        "Grows with the distance.",
        (
            "trymirai/lalamo/pull/268",
            "skyzh/tiny-llm/pull/25",
            "rasbt/LLMs-from-scratch/pull/381",
        ),
    ),
    Fault(
        "SPE108",
        "positions of keys and queries differ",
        ("position of keys", "position of queries"),
        "Keys are rotated as if they were at earlier or later positions.",
        "An offset of the cache is added only to queries or only to keys, or positions are counted from 1 "
        "on one side.",
        "Rotate queries and keys with the same positions.",
        "The shift is the same at every distance; relative to the lag, it is largest for neighbouring "
        "tokens.",
        (
            "RobertCsordas/moeut/pull/6",
            "mlx-node/mlx-node/pull/33",
        ),
    ),
    Fault(
        "SPE109",
        "rotation of single heads differs",
        ("rotation",),
        "A head or key-value head is not rotated, or not in pairs.",
        "A tensor-parallel split or a reshape applies the rotation only to some of the heads, or only to "
        "queries or keys.",
        "Rotate every query head and every key-value head.",
        "From the first few tokens on, in the heads named.",
        ("vukrosic/leo-optimizer/pull/2",),
    ),
    Fault(
        "SPE110",
        "encoding differs",
        ("encoding",),
        "The layer applies another family of encodings than the declared one, or none.",
        "A pattern of layers without rotation is read inverted, or an encoding is not implemented.",
        "Apply the declared family in this layer.",
        "From the first few tokens on.",
        (
            "mlfoundations/open_lm/issues/4",
            "airockchip/rknn-llm/issues/501",
            "huggingface/transformers/issues/43756",
            "timtoole02/Camelid/pull/535",
            "huggingface/transformers/issues/34234",
        ),
    ),
    Fault(
        "SPE111",
        "positions are not those of the tokens",
        ("positions",),
        "Angles follow the declared frequencies, but positions restart, repeat or skip.",
        "Position ids are computed per chunk or block, or are clamped to the length of a table.",
        "Pass the position of each token in its sequence to the rotation.",
        "None up to the first token whose position is wrong; beyond it, every distance across that token is "
        "wrong.",
        (
            "pegainfer-project/pegainfer/issues/220",
            "NVIDIA/Megatron-LM/issues/560",
            "NVIDIA/Megatron-LM/issues/453",
        ),
    ),
    Fault(
        "SPE112",
        "position in values differs",
        ("values",),
        "Values of the same content differ between positions, or do not where the architecture lets them.",
        "The rotation is also applied to values, or to an entire fused projection; or values that the "
        "architecture rotates or convolves are used as projected.",
        "Rotate queries and keys alone; values, too, where the architecture does.",
        "Grows with the distance: values from distant tokens are rotated by the largest angles.",
        ("labmlai/annotated_deep_learning_paper_implementations/issues/251",),
    ),
    Fault(
        "SPE113",
        "order of norm and rotation differs",
        ("order of norm and rotation",),
        "Queries and keys are normalised after their rotation where the architecture does it before, or the "
        "reverse.",
        "A port rotates before `q_norm` and `k_norm`; with weights that differ between the coordinates of a "
        "pair, the result is no rotation.",
        "Apply the norms and the rotation in the order of the architecture.",
        "From the first few tokens on.",
        ("karpathy/nanochat/issues/743",),
    ),
    Fault(
        "SPE114",
        "norm of queries or keys differs",
        ("norm of",),
        "The norm that the architecture applies to queries or keys is omitted or replaced by another module, "
        "or there is one that the architecture lacks.",
        "A port or an optimised attention skips `q_norm` or `k_norm`, or loads a class without them; "
        "an attention of another architecture is reused, with its norms.",
        "Apply the norms of the architecture to queries and keys.",
        "Independent of the distance: logits grow with the size of the hidden states.",
        (
            "vllm-project/vllm/pull/16311",
            "lucidrains/x-transformers/issues/352",
            "kyegomez/MegaVIT/issues/17",
            "Cerebras/modelzoo/pull/85",
        ),
    ),
    Fault(
        "SPE115",
        "axes of the rotation differ",
        ("axes",),
        "In a vision tower, pairs that should turn with the row turn with the column, or vice versa; under "
        "M-RoPE, pairs turn with another of time, height and width than declared, or as none of them.",
        "A port exchanges height and width, or splits the pairs between the axes in another way: in halves "
        "instead of in turn. Or it keeps one position per token, which is correct for texts.",
        "Give each pair the coordinate of the axis that the architecture gives it.",
        "Grows with the distance of patches; pictures that are as wide as high hide exchanged axes from "
        "tests of shapes. Under M-RoPE, texts without pictures are not affected.",
        (
            "sgl-project/sglang/pull/34446",
            "alibaba/MNN/pull/4133",
            "Blaizzy/mlx-vlm/pull/576",
            "osaurus-ai/vmlx-swift/pull/225",
            "vllm-project/vllm-omni/pull/1784",
        ),
    ),
    Fault(
        "SPE116",
        "position or mask in cross-attention",
        ("position in cross-attention", "mask of cross-attention"),
        "A decoder's attention to its encoder depends on the position, leaves out keys, or sees padding.",
        "The bias, rotation or causal mask of self-attention is also applied to cross-attention, or the mask "
        "of the encoder's padding is not passed on, perhaps for decoded tokens alone.",
        "Apply neither positions nor a mask other than that of padding there; the encoder's states hold the "
        "positions.",
        "Present from the first token on; a bias or rotation grows with the distance between the places in "
        "both sequences, which have no common order.",
        (
            "guillaume-be/rust-bert/pull/171",
            "huggingface/transformers/issues/7323",
            "huggingface/transformers/pull/4499",
        ),
    ),
    Fault(
        "SPE117",
        "a declared field is ignored",
        ("field",),
        "The configuration has a field that changes attention, and the code of the model and of its "
        "configuration nowhere names it; or a `factor` of a rotary scaling without the kind of scaling, by "
        "which nothing is scaled.",
        "A checkpoint is loaded by another class than it was trained with, or by a version of the library "
        "that has dropped the field, such as BERT's `position_embedding_type` of `relative_key`; or an edit "
        "for a longer context left out `rope_type`.",
        "Load the checkpoint with a class or version that reads the field, or state the `rope_type` of the "
        "scaling; remove the field if the weights were trained without it.",
        "As what the field declares: a relative encoding, a factor or a chunk matters at every length, a "
        "temperature or an extension beyond the trained one.",
        (
            "huggingface/transformers/pull/41170",
            "vllm-project/vllm/issues/36880",
            "vllm-project/vllm/pull/6139",
            "QwenLM/Qwen3/issues/121",
        ),
    ),
    Fault(
        "SPE118",
        "weights of attention are ignored",
        ("weights ",),
        "The checkpoint holds weights within attention, or of positions, for which the model's class has no "
        "parameter, so that they were not loaded.",
        "The configuration names another architecture than that of the weights, such as one without norms of "
        "queries and keys, biases of projections or sinks; a version of the library has dropped an encoding; "
        "or adapters were not merged.",
        "Load the checkpoint with the class that it was trained with; merge adapters before saving.",
        "As what is missing: norms, biases of projections and sinks matter at every length, tables of "
        "relative positions as far as they reach.",
        ("fla-org/flash-linear-attention/issues/136", "huggingface/transformers/pull/41170"),
    ),
    Fault(
        "SPE201",
        "direction of the mask differs",
        ("direction of the mask",),
        "In a decoder, queries attend to later keys; or in an encoder, they do not.",
        "The causal mask is skipped if no other mask is passed, or `is_causal` is not passed on.",
        "Pass the causal mask, or `is_causal`, to the attention kernel of every layer named.",
        "The first token of a decoder may attend to the whole text; the longer the text, the more "
        "information leaks.",
        (
            "huggingface/transformers/issues/48745",
            "facebookresearch/xformers/issues/103",
            "keras-team/keras/issues/23038",
            "huggingface/transformers/issues/39408",
            "rasbt/LLMs-from-scratch/pull/1062",
            "tenstorrent/tt-metal/issues/41215",
            "huggingface/transformers/issues/48748",
            "huggingface/candle/issues/3505",
        ),
    ),
    Fault(
        "SPE202",
        "window or chunk differs",
        ("mask",),
        "Queries attend to more or fewer keys than the declared window, chunk, blocks or global tokens hold.",
        "One attention backend ignores the window, or backends disagree on whether the window includes the "
        "query itself.",
        "Pass the declared window to the kernel; Hugging Face counts the query's own key in it, except for "
        "Longformer's, half of which lies on either side of it.",
        "None up to the length of the shorter window, then for every query beyond it.",
        (
            "karpathy/nanochat/issues/452",
            "huggingface/transformers/issues/39408",
            "huggingface/transformers/issues/29623",
            "unslothai/unsloth/pull/8253",
            "huggingface/transformers/issues/35896",
            "vllm-project/vllm/pull/33594",
            "zml/zml/pull/763",
            "vllm-project/vllm/issues/3385",
            "vllm-project/vllm/pull/17772",
            "ggml-org/llama.cpp/pull/12791",
            "allenai/longformer/issues/194",
            "huggingface/transformers/pull/4352",
            "allenai/longformer/issues/254",
            "huggingface/transformers/pull/23056",
            "google-research/bigbird/issues/35",
            "huggingface/transformers/pull/711",
        ),
    ),
    Fault(
        "SPE301",
        "slopes of ALiBi differ",
        ("slopes",),
        "The linear bias of at least one head has another slope than declared.",
        "Slopes follow another convention where the number of heads is no power of two, or are given to the "
        "heads in another order.",
        "Use the authors' slopes, in the order of the heads.",
        "The bias is off in proportion to the distance.",
        (
            "ml-explore/mlx/pull/3071",
            "baichuan-inc/Baichuan2/issues/225",
            "NVIDIA/TensorRT-LLM/pull/1611",
            "paiml/aprender/pull/2143",
            "ml-explore/mlx/issues/343",
            "antofuller/CROMA/issues/12",
        ),
    ),
    Fault(
        "SPE302",
        "buckets or relative positions differ",
        ("buckets", "relative positions"),
        "Lags are assigned to entries of the table of relative positions in another way than declared.",
        "An encoder uses a decoder's buckets or vice versa, the sign of the lag is reversed, or the number "
        "or maximum distance of buckets, or the lag at which relative positions are clamped, is not read.",
        "Compute buckets from `relative_attention_num_buckets` and `relative_attention_max_distance` (T5), "
        "from `position_buckets` and `max_relative_positions` (DeBERTa), and clamp lags at `clamp_len` "
        "(XLNet).",
        "Depends on which lags change their bucket.",
        (
            "huggingface/transformers/pull/16155",
            "huggingface/transformers/pull/8518",
            "nntrainer/nntrainer/pull/3982",
            "NVIDIA/TensorRT/issues/3370",
            "laiguokun/Funnel-Transformer/issues/8",
        ),
    ),
    Fault(
        "SPE303",
        "values of the relative term differ",
        ("values of the bias table", "relative term"),
        "Biases are not the values that the layer's table holds for their buckets and heads, or terms of the "
        "logits that pair content with relative positions are not those of the layer's weights.",
        "The sign is flipped, heads are read in another order, biases are scaled with the logits, or a term "
        "is left out or has another factor than the product of queries and keys.",
        "Add the rows of `relative_attention_bias` unchanged, one column per head; add every declared term, "
        "under the factor of the products.",
        "From the first few tokens on, in the heads named.",
        (
            "tenstorrent/tt-metal/pull/56406",
            "huggingface/transformers/pull/6908",
            "zihangdai/xlnet/issues/62",
            "huggingface/transformers/pull/7267",
        ),
    ),
    Fault(
        "SPE304",
        "decay of linear attention differs",
        ("decay",),
        "In at least one head of a layer of linear attention, the weight of a key decays with the lag at "
        "another rate than the architecture's, or not exponentially.",
        "Rates are computed for another layer or another number of heads, their sign is lost, or the state "
        "between blocks or behind a cache is dropped or decays differently.",
        "Compute the rates from the number of the layer and of the head in the whole model, and apply them "
        "to the state in every block and in every step of decoding.",
        "Grows with the lag: heads forget too early or too late.",
        (
            "sgl-project/sglang-jax/pull/928",
            "bigscience-workshop/Megatron-DeepSpeed/issues/227",
        ),
    ),
    Fault(
        "SPE401",
        "absolute term differs",
        ("absolute term", "vectors by position", "bias less that at lag 0"),
        "The position-dependent term in a layer's input or bias is missing or differs, or a table of "
        "positions has fewer rows than are declared, or rows that repeat earlier ones.",
        "The position table is not added, belongs to another checkpoint, or was cut, tiled or filled up.",
        "Add the declared table to the embeddings.",
        "From the first token on.",
        (
            "BrianPulfer/PapersReimplementations/issues/9",
            "EleutherAI/gpt-neox/pull/147",
        ),
    ),
    Fault(
        "SPE402",
        "first position differs",
        ("first position", "position of token"),
        "The table of positions is entered at another row than declared, or rotation starts at another "
        "position.",
        "An offset, such as OPT's 2 or RoBERTa's padding row, is lost, or padding is counted.",
        "Start at the declared row, and skip padding.",
        "The shift is the same at every position; it is harmless if queries and keys are rotated alike.",
        ("huggingface/transformers/issues/5285",),
    ),
    Fault(
        "SPE403",
        "query scale differs",
        ("query scale", "key scale"),
        "The scale of queries or keys changes with the position in another way than declared.",
        "Temperature tuning of unrotated layers is missing or misread.",
        "Apply the declared factor at each position.",
        "None up to the declared floor, then growing with the position.",
        (
            "vllm-project/vllm/pull/19997",
            "NVIDIA/TensorRT-LLM/pull/3491",
            "AI-Hypercomputer/maxtext/pull/1611",
        ),
    ),
    Fault(
        "SPE404",
        "attention scale differs",
        ("attention scale",),
        "Dot products of a layer, or of one head, are multiplied by another factor than declared.",
        "The factor is computed from another width (the model's, or that of a part of the head), "
        "`query_pre_attn_scalar` or "
        "`attention_multiplier` is not read, YaRN's mscale is left out or applied twice, or queries are "
        "scaled both before and in the kernel.",
        "Compute the factor of every layer from the configuration, and apply it once.",
        "From the first token: logits are sharper or flatter by this factor at every distance.",
        (
            "onnxruntime/mobius/pull/548",
            "huggingface/transformers/pull/47435",
            "ollama/ollama/pull/13893",
            "ggml-org/llama.cpp/pull/8444",
            "antonellof/ferrox/issues/40",
        ),
    ),
    Fault(
        "SPE405",
        "cap of attention logits differs",
        ("cap of logits",),
        "Logits are capped at another value than declared, or not at all.",
        "A fused kernel without a cap is used, or `attn_logit_softcapping` is not read.",
        "Use a kernel that caps logits, or plain attention.",
        "Affects logits near the cap; independent of the distance.",
        (
            "sgl-project/sglang/issues/33915",
            "NVIDIA/TransformerEngine/pull/3391",
        ),
    ),
    Fault(
        "SPE406",
        "attention sinks differ",
        ("attention sinks",),
        "The layer's sinks do not reach its softmax, or reach other heads.",
        "A kernel without sinks is used, or their order is not that of the heads.",
        "Pass the sinks to the attention kernel.",
        "Independent of the distance: attention that the sinks should take goes to keys.",
        (
            "tenstorrent/tt-metal/pull/31115",
            "HabanaAI/vllm-hpu-extension/pull/339",
        ),
    ),
    Fault(
        "SPE407",
        "attention function differs",
        ("attention function", "heads of"),
        "The attention function gives keys other weights than softmax of the masked logits, of the layer or "
        "of the heads named, or reads the values of other heads, or is given queries or keys whose heads are "
        "in another order than they were projected.",
        "A custom kernel takes key-value heads in turn instead of in runs, normalises over the wrong "
        "axis, or drops weights after softmax.",
        "Compare the function with plain attention on random inputs, with grouped heads and with a mask.",
        "Independent of the distance.",
        (
            "PSAL-POSTECH/ONNXim/pull/34",
            "apple/axlearn/pull/842",
            "NVIDIA/torch-harmonics/pull/221",
        ),
    ),
    Fault(
        "SPE501",
        "a serving mode differs",
        ("kernel of", "mask of", "output of", "input of"),
        "Decoding from a cache, chunks, padding, packing or special tokens give another kernel than a plain "
        "forward pass; or, where tokens differ, other outputs of attention; or other states enter the first "
        "layer.",
        "Positions or biases restart in each call or after the end of a text, padding is not skipped or is "
        "counted in decoding, a row gets the positions or the mask of another, a cache holds too few keys, "
        "exchanges keys or values, or shows those not yet written, or the attention function that runs in "
        "this mode draws another mask, drops a cap or sees padding.",
        "Count positions from the start of each text in every serving mode, and give the attention function "
        "of each mode the same mask and options.",
        "Depends on the serving mode; see the query and key named in the finding.",
        (
            "ml-explore/mlx-lm/pull/390",
            "huggingface/transformers/issues/37574",
            "swiss-ai/Megatron-LM/pull/40",
            "huggingface/transformers/issues/43082",
            "unslothai/unsloth/issues/3699",
            "ndif-team/nnsight/pull/673",
            "pytorch/pytorch/issues/144858",
            "AnswerDotAI/ModernBERT/pull/40",
            "vllm-project/vllm-metal/pull/666",
        ),
    ),
    Fault(
        "SPE601",
        "the configuration contradicts itself",
        ("the configuration declares two",),
        "Two fields of the checkpoint's configuration contradict each other.",
        "An old and a new layout of the same field are both present, and an edit changed one of them.",
        "Keep one of the fields.",
        "As for the property that the finding names.",
        (
            "MakazhanAlpamys/Soup/issues/793",
            "microsoft/onnxruntime-genai/pull/2609",
        ),
    ),
    Fault(
        "SPE602",
        "a GGUF file contradicts itself or its source",
        ("metadata of the file", "sections of the file", "tensors of the file"),
        "Metadata and tensors of a GGUF file state positions in ways that cannot all hold, such as a scaling "
        "without its factor, a scaling stated twice, or sections that do not fill the rotated pairs; or "
        "llama.cpp refuses the file, as it loads no such frequency factors.",
        "A converter writes the kind of a scaling and drops its numbers, or the tensor of frequency factors "
        "is lost when a file is edited or requantised.",
        "Convert the source again with a converter that supports its architecture, and audit the result.",
        "A lost or doubled scaling: as for a wrong base, the error grows in proportion to the distance.",
        ("ikawrakow/ik_llama.cpp/pull/402", "ggml-org/llama.cpp/issues/12468"),
    ),
    Fault(
        "SPE701",
        "the kernel of a head changed",
        ("kernel of head",),
        "A head's positional kernel is not the locked one, although the layer's encoding and the norms of "
        "its queries and keys are.",
        "A conversion permuted rows of the query or key projection, or heads, without the matching layout of "
        "pairs.",
        "Convert the checkpoint again with the permutation that the target code expects, and compare with "
        "`spectrope diff "
        "--role converted`.",
        "From the first few tokens on.",
        ("karpathy/nanochat/issues/264",),
    ),
    Fault(
        "SPE702",
        "a layer is missing or no longer read",
        ("layers",),
        "A layer that was locked, or is expected, has no attention that the audit can read.",
        "Layers were dropped, or a new version computes their attention in another way.",
        "Compare the numbers of layers. If attention is now computed by a fused kernel, load the model with "
        '`attn_implementation="eager"` or "sdpa".',
        "Independent of the distance.",
    ),
    Fault(
        "SPE703",
        "a serving mode changed",
        ("serving mode",),
        "Decoding from a cache, padding or packing agreed with a plain forward pass when the checkpoint was "
        "locked, but no longer does, or vice versa.",
        "A new version of a library counts positions or builds masks in another way.",
        "Return to the locked version of the library, or report the change to its maintainers; SPE501 "
        "describes what to look for.",
        "Depends on the serving mode.",
    ),
    Fault(
        "SPE711",
        "rows of queries and keys are in another order",
        ("rows of queries", "rows of keys", "order of heads"),
        "Two checkpoints compute the same queries or keys with coordinates or heads in another order.",
        "One was converted between adjacent pairs and halves, or for another split of heads, and the other "
        "was not.",
        "Convert both in the same way before they are merged; of a converted checkpoint, choose the code "
        "that pairs coordinates as the rows lie.",
        "From the first few tokens on.",
        ("karpathy/nanochat/issues/264", "huggingface/transformers/pull/47403"),
    ),
    Fault(
        "SPE712",
        "two models do not fit together",
        ("vocabulary", "trained length", "heads", "width of heads", "width of states"),
        "Sizes that both models must have in common for this purpose differ.",
        "The models are of different families, or one was resized.",
        "Choose models of one family, or resize one of them.",
        "Independent of the distance, except for the trained length.",
        ("sgl-project/SpecForge/issues/265",),
    ),
    Fault(
        "SPE713",
        "queries and keys are different functions of the layer's input",
        ("queries and keys",),
        "For the same input, two checkpoints that should hold the same weights give other logits, which "
        "neither their encodings nor an order of rows explains.",
        "Weights were lost, drawn anew, or transformed in conversion, such as a norm folded into a "
        "projection.",
        "Compare the weights of the query and key projections in the named layers.",
        "From the first token on.",
        ("huggingface/transformers/issues/45902", "huggingface/transformers/issues/34234"),
    ),
)


PICTURES = "images/findings"  # Within the folder of the documentation.
# No fault of a plain forward pass on tokens, or one of many kinds.
UNPICTURED = ("SPE115", "SPE117", "SPE118", "SPE501", "SPE601", "SPE602")
COMPARED = "SPE7"  # Codes of a checkpoint against another, of which any other fault may be the cause.
PICTURED = tuple(
    one.code for one in FAULTS if one.code not in UNPICTURED and not one.code.startswith(COMPARED)
)


def fault(code: str) -> Fault:
    """The fault of that code, in upper or lower case.

    Raises:
        UnknownNameError: If there is none.
    """
    known = {one.code: one for one in FAULTS}
    if code.upper() not in known:
        raise UnknownNameError("code of a finding", code, known)
    return known[code.upper()]


def code_of(respect: str) -> str:
    """The code of what a finding is about; where several begin like it, the longest beginning decides."""
    matching = [
        (len(start), one.code) for one in FAULTS for start in one.respects if respect.startswith(start)
    ]
    return max(matching)[1]


def as_page() -> str:
    """The catalogue as a page of the documentation."""
    head = (
        "# What an audit finds\n\nEvery finding has a code. `spectrope explain SPE101` prints an entry. "
        "This page is what `spectrope.checkpoints.audit.catalogue.as_page()` returns.\n\n"
        "Each picture shows one such fault in a small model with random weights: the Kullback-Leibler "
        "divergence of its next-token distributions from those of the same model without the fault, after "
        "so many random tokens. `python -m tests.checkpoints.audit.pictures` draws them. Sizes depend on the "
        "model; an audit measures them on yours.\n"
    )
    return "\n".join([head, *map(_section, FAULTS)])


def _section(one: Fault) -> str:
    rows = (
        ("Symptom", one.symptom),
        ("How it arises", one.cause),
        ("Effect by length", one.by_length),
        ("Fix", one.fix),
    )
    text = "\n".join(f"- **{title}.** {body}" for title, body in rows)
    links = ", ".join(f"[{thread}]({HUB}{thread})" for thread in one.threads)
    picture = f"\n![{one.name}: divergence against length](../{PICTURES}/{one.code}.svg)\n"
    shown = picture if one.code in PICTURED else ""
    cited = f"- **Public threads.** {links}\n" if links else ""
    return f"## {one.code} {one.name}\n\n{text}\n{cited}{shown}"
