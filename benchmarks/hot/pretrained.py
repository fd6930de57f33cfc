"""Models of the transformers library, built small from their configurations, with random weights."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.hot.training import Named, ways

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
WRITERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "llama": ("Llama", {**SMALL, "num_key_value_heads": 2}),
    "mistral": ("Mistral", {**SMALL, "num_key_value_heads": 2, "sliding_window": 16}),
    "qwen2": ("Qwen2", {**SMALL, "num_key_value_heads": 2}),
    "gemma": ("Gemma", {**SMALL, "num_key_value_heads": 2, "head_dim": 8}),
    "phi": ("Phi", SMALL),
    "gpt_neox": ("GPTNeoX", SMALL),
    "bloom": ("Bloom", {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "opt": ("OPT", {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "mixtral": ("Mixtral", {**SMALL, "num_key_value_heads": 2, "num_local_experts": 4}),
    "mamba": ("Mamba", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
}
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", SMALL),
    "roberta": ("RobertaForMaskedLM", SMALL),
    "electra": ("ElectraForMaskedLM", {**SMALL, "embedding_size": 32}),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    ),
    "deberta_v2": ("DebertaV2ForMaskedLM", {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "albert": ("AlbertForMaskedLM", {**SMALL, "embedding_size": 32}),
}
IMAGE = {"image_size": 32, "num_labels": 10}
VIEWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", {**SMALL, **IMAGE, "patch_size": 8}),
    "deit": ("DeiTForImageClassification", {**SMALL, **IMAGE, "patch_size": 8}),
    "swin": (
        "SwinForImageClassification",
        {**IMAGE, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    ),
    "convnext": (
        "ConvNextForImageClassification",
        {**IMAGE, "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    ),
    "resnet": (
        "ResNetForImageClassification",
        {**IMAGE, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    ),
    "mobilenet_v2": ("MobileNetV2ForImageClassification", {**IMAGE, "depth_multiplier": 0.25}),
    "segformer": (
        "SegformerForImageClassification",
        {**IMAGE, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16},
    ),
}


def programs() -> Named:
    """Each family of models: trained, asked, and made to write."""
    import transformers

    transformers.logging.set_verbosity_error()
    for name, (family, sizes) in WRITERS.items():
        yield name, lambda family=family, sizes=sizes: _writer(family, sizes)
    for name, (family, sizes) in READERS.items():
        yield name, lambda family=family, sizes=sizes: _reader(family, sizes)
    for name, (family, sizes) in VIEWERS.items():
        yield name, lambda family=family, sizes=sizes: _viewer(family, sizes)
    yield "t5", _t5
    yield "bart", _bart
    yield "whisper", _whisper
    yield "wav2vec2", _wav2vec2
    yield "clip", _clip


def _model(family: str, sizes: dict[str, Any]) -> Any:
    import transformers

    model = getattr(transformers, family)
    return model(model.config_class(**sizes))


def _writer(family: str, sizes: dict[str, Any]) -> None:
    head = {"GPT2": "LMHeadModel"}.get(family, "ForCausalLM")
    model = _model(family + head, sizes)
    words = torch.randint(0, 64, (2, 12))
    mask = torch.ones_like(words)
    mask[0, :3] = 0
    ways(model, lambda: model(input_ids=words, labels=words).loss)
    ways(model, lambda: model(input_ids=words, attention_mask=mask, labels=words).loss)
    ask = {"attention_mask": mask, "max_new_tokens": 4, "pad_token_id": 0}
    model.generate(words, do_sample=False, **ask)
    model.generate(words, do_sample=True, top_k=5, top_p=0.9, temperature=0.8, **ask)
    if family != "Mamba":
        model.generate(words, num_beams=2, do_sample=False, **ask)
    if family in ("GPT2", "Llama"):
        model.set_attn_implementation("eager")
        ways(model, lambda: model(input_ids=words, attention_mask=mask, labels=words).loss)


def _reader(family: str, sizes: dict[str, Any]) -> None:
    model = _model(family, sizes)
    words = torch.randint(0, 64, (2, 12))
    mask = torch.ones_like(words)
    mask[0, 8:] = 0
    ways(model, lambda: model(input_ids=words, attention_mask=mask, labels=words).loss)


def _viewer(family: str, sizes: dict[str, Any]) -> None:
    model = _model(family, sizes)
    pictures, labels = torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,))
    ways(model, lambda: model(pixel_values=pictures, labels=labels).loss)


def _t5() -> None:
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    model = _model("T5ForConditionalGeneration", {**sizes, "decoder_start_token_id": 0})
    _translator(model)


def _bart() -> None:
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    widths = {
        "vocab_size": 64,
        "d_model": 32,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
    }
    _translator(_model("BartForConditionalGeneration", {**sizes, **widths}))


def _translator(model: Any) -> None:
    words = torch.randint(3, 64, (2, 12))
    ways(model, lambda: model(input_ids=words, labels=words).loss)
    model.generate(words, max_new_tokens=4)
    model.generate(words, max_new_tokens=4, num_beams=2)


def _whisper() -> None:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    widths = {"vocab_size": 64, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 16}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    places = {
        "max_source_positions": 20,
        "max_target_positions": 20,
        "suppress_tokens": [],
        "begin_suppress_tokens": [],
    }
    model = _model("WhisperForConditionalGeneration", {**sizes, **widths, **tokens, **places})
    sound, words = torch.randn(2, 16, 40), torch.randint(0, 64, (2, 8))
    ways(model, lambda: model(input_features=sound, labels=words).loss)


def _wav2vec2() -> None:
    sizes = {**SMALL, "vocab_size": 32, "conv_dim": (16, 16), "conv_stride": (4, 4), "conv_kernel": (8, 4)}
    model = _model(
        "Wav2Vec2ForCTC",
        {**sizes, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_length": 2},
    )
    sound, words = torch.randn(2, 800), torch.randint(1, 32, (2, 5))
    ways(model, lambda: model(sound, labels=words).loss)


def _clip() -> None:
    text = {**SMALL, "eos_token_id": 63}
    model = _model(
        "CLIPModel",
        {"text_config": text, "vision_config": {**SMALL, "image_size": 32, "patch_size": 8}, "projection_dim": 16},
    )
    words, pictures = torch.randint(0, 64, (2, 8)), torch.randn(2, 3, 32, 32)
    ways(model, lambda: model(input_ids=words, pixel_values=pictures, return_loss=True).loss)
