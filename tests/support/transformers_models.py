"""Small models of transformers with random weights, built from configurations: nothing is downloaded."""

from collections.abc import Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch

# Grounding DINO knows the tokens that end a phrase by their numbers in BERT's vocabulary.
BERT_TOKENS = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]", 1012: ".", 1029: "?"}
ONE_LAYER = {
    "encoder_layers": 1,
    "encoder_ffn_dim": 16,
    "encoder_attention_heads": 2,
    "decoder_ffn_dim": 16,
    "decoder_attention_heads": 2,
}
WORDS = ("a", "red", "green", "apple", "cup", "dog", "tea", "##s")


def save_detr(folder: Path, id2label: Mapping[int, str]) -> Path:
    """Write a DETR with one layer each way and its processor."""
    from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessorPil, ResNetConfig

    torch.manual_seed(0)
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 8, 8, 16],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=["stage4"],
        ),
        num_queries=7,
        d_model=16,
        decoder_layers=1,
        **ONE_LAYER,
        id2label=dict(id2label),
    )
    model = DetrForObjectDetection(config)
    _spread(model)
    torch.nn.init.constant_(model.class_labels_classifier.bias[-1:], -3)  # few boxes without an object
    return _saved(folder, model, DetrImageProcessorPil(size={"shortest_edge": 48, "longest_edge": 64}))


def save_owlvit(folder: Path) -> Path:
    """Write an OWL-ViT with one layer each way, its tokenizer of single letters and its processor."""
    from transformers import (
        CLIPTokenizer,
        OwlViTConfig,
        OwlViTForObjectDetection,
        OwlViTImageProcessorPil,
        OwlViTProcessor,
    )

    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    special = ["<|startoftext|>", "<|endoftext|>"]
    letters = [*ascii_lowercase, *(f"{letter}</w>" for letter in ascii_lowercase)]
    vocabulary = {token: number for number, token in enumerate([*letters, *special])}
    ends = {"bos_token_id": vocabulary[special[0]], "eos_token_id": vocabulary[special[1]]}
    config = OwlViTConfig(
        text_config={**small, **ends, "vocab_size": len(vocabulary), "max_position_embeddings": 16, "pad_token_id": 0},
        vision_config={**small, "image_size": 64, "patch_size": 16},
        projection_dim=16,
    )
    model = OwlViTForObjectDetection(config)
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=16)
    images = OwlViTImageProcessorPil(size={"height": 64, "width": 64}, crop_size={"height": 64, "width": 64})
    return _saved(folder, model, OwlViTProcessor(images, tokenizer))


def save_grounding_dino(folder: Path) -> Path:
    """Write a Grounding DINO with one layer each way, a tokenizer of a few words and its processor."""
    from transformers import (
        BertConfig,
        BertTokenizer,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessorPil,
        GroundingDinoProcessor,
        SwinConfig,
    )

    torch.manual_seed(0)
    tokens = {number: f"[unused{number}]" for number in range(1030)} | BERT_TOKENS
    tokens |= {2000 + number: word for number, word in enumerate(WORDS)} | {
        number: f"[unused{number}]" for number in range(1030, 2000)
    }
    vocabulary = {token: number for number, token in sorted(tokens.items())}
    text = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    backbone = SwinConfig(
        image_size=64,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        window_size=2,
        out_features=["stage2", "stage3", "stage4"],
    )
    config = GroundingDinoConfig(
        backbone_config=backbone,
        text_config=text,
        d_model=32,
        num_queries=9,
        max_text_len=32,
        decoder_layers=2,
        **ONE_LAYER,
        num_feature_levels=4,
    )
    model = GroundingDinoForObjectDetection(config)
    _spread(model)
    images = GroundingDinoImageProcessorPil(size={"shortest_edge": 96, "longest_edge": 128})
    return _saved(folder, model, GroundingDinoProcessor(images, BertTokenizer(vocab=vocabulary)))


def _spread(model: Any) -> None:
    """Make weights after the backbone so large that boxes, scores and labels differ."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "backbone" not in name:
            torch.nn.init.normal_(weight, std=0.3)


def _saved(folder: Path, model: Any, processor: Any) -> Path:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
