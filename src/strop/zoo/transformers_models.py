"""Models of the transformers library as plain modules: tensors in by name, one tensor of logits out."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

TASKS = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "image_classification": "AutoModelForImageClassification",
}


class EncoderClassifier(nn.Module):
    """Mean of the encoder's last states over the attention mask, scaled to length 1, and a linear layer."""

    def __init__(self, encoder: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(features, classes)

    def embed(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the embedding of each text, float32 [batch, features]."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        mask = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=-1)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [batch, classes]."""
        logits: torch.Tensor = self.head(self.embed(input_ids, attention_mask))
        return logits


class TextClassifier(nn.Module):
    """A sequence classifier with its own head."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [batch, classes]."""
        logits: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        return logits


class ImageClassifier(nn.Module):
    """An image classifier with its own head."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [batch, classes]."""
        logits: torch.Tensor = self.model(pixel_values=pixel_values, return_dict=False)[0]
        return logits


def _config(config: dict[str, Any]) -> Any:
    return transformers.AutoConfig.for_model(**config)


def encoder_classifier(config: dict[str, Any], classes: int) -> EncoderClassifier:
    """Return an encoder with a linear head; `config` as in the model's config.json."""
    made = _config(config)
    return EncoderClassifier(transformers.AutoModel.from_config(made), made.hidden_size, classes)


def sequence_classification(config: dict[str, Any]) -> TextClassifier:
    """Return a sequence classifier; `config` as in the model's config.json."""
    return TextClassifier(transformers.AutoModelForSequenceClassification.from_config(_config(config)))


def image_classification(config: dict[str, Any]) -> ImageClassifier:
    """Return an image classifier; `config` as in the model's config.json."""
    return ImageClassifier(transformers.AutoModelForImageClassification.from_config(_config(config)))
