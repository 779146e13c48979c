"""Other people's models: loading, audit, comparison, ablation and spectra."""

__all__ = [
    "LENGTH",
    "METHOD_NAMES",
    "AblatedModel",
    "BatchOption",
    "CallMethod",
    "CheckpointAtlas",
    "CheckpointFill",
    "CheckpointSubject",
    "Checkpoints",
    "Content",
    "HeadCalls",
    "ModelSpectrum",
    "ModelTerms",
    "OwnModel",
    "RepeatedTokens",
    "SomeLayersOption",
    "TaskOption",
    "TextsOption",
    "Tokenizer",
    "TokensOption",
    "ablate_model",
    "atlas_checkpoint",
    "call_heads",
    "checkpoint_folder",
    "document_tokens",
    "evaluating",
    "extend_checkpoint",
    "is_checkpoint",
    "long_documents",
    "open_model",
    "open_tokenizer",
    "parse_layers",
    "plan_checkpoint",
    "register_attention",
    "sequences_for",
    "spectrum_of_model",
    "trained_length",
    "zeroed_heads",
]

from .ablation.called import HeadCalls, call_heads
from .ablation.calls import CallMethod
from .ablation.show import AblatedModel, Content, ablate_model
from .ablation.subject import CheckpointSubject
from .ablation.sweep import CheckpointFill
from .ablation.zeroed import zeroed_heads
from .adapters import evaluating, open_model, open_tokenizer, parse_layers
from .adapters.attention import register_attention
from .adapters.inputs import trained_length
from .adapters.own import OwnModel
from .adapters.structure import checkpoint_folder, is_checkpoint
from .adapters.texts import Tokenizer
from .atlas import CheckpointAtlas, atlas_checkpoint
from .attention_plan import plan_checkpoint
from .extension.extend import METHOD_NAMES, document_tokens, extend_checkpoint, long_documents
from .options import BatchOption, Checkpoints, SomeLayersOption, TaskOption, TextsOption, TokensOption
from .repeated.config import RepeatedTokens
from .spectrum_show import LENGTH, ModelSpectrum, ModelTerms, sequences_for, spectrum_of_model
