"""The Mixed Attention Transformer as a Hugging Face model: a pretrained encoder some of whose layers are MAT layers.

A MAT layer has two attentions side by side, the pretrained multi-head attention and a translation head whose attention
matrix M^tr is given::

    h_mh = LN(h + MH(h))                 the pretrained layer's own
    h_th = LN'(h + M^tr (h W_v) W_o)     two d × d matrices with biases and a layer norm, new
    out  = FFN(h_mh + h_th)              the pretrained layer's own, with its residual connection and layer norm
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.roberta.modeling_roberta import RobertaLayer
from transformers.models.xlm_roberta.modeling_xlm_roberta import XLMRobertaLayer
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils import ModelOutput

from pyterrier_mart import encoders
from pyterrier_mart.checks import check_choice
from pyterrier_mart.encoders.loading import load_config, reading
from pyterrier_mart.mart.attention import TranslationAttention

__all__ = ["MartConfig", "MartForRanking", "MartModel", "RankingOutput", "TranslationHead"]

# What transformers gives a layer and only decoders take.
_DECODER_ONLY = ("encoder_hidden_states", "encoder_attention_mask", "cache", "past_key_values", "past_key_value")


class MartConfig(PreTrainedConfig):
    """What a :class:`MartModel` is made of.

    Args:
        encoder_config: Configuration of the encoder: BERT, RoBERTa or XLM-RoBERTa.
        mat_layers: The layers with a translation head, numbered from 0, or from the end with negative numbers;
            the default is the two before the last (10 and 11 of 12 in the paper, which counts from 1). Without any, the
            model is the plain encoder.
        pooling: What represents a passage: ``"cls"``, the last hidden state of its first token, or ``"pooler"``, the
            encoder's own pooling of it.
        translation_init: The new matrices W_v and W_o at the start: ``"identity"``, ``"random"`` as the encoder's own
            matrices were (as in the paper), or ``"zero"``: identity, but with a layer norm that starts at zero, so that
            the model begins as the pretrained one.
        head_dropout: Dropout before the linear layer that scores.

    Raises:
        ValueError: If the encoder is of another kind or a layer does not exist; the message names what there is.
    """

    model_type = "mart"
    sub_configs = {"encoder_config": AutoConfig}

    def __init__(
        self,
        encoder_config: PreTrainedConfig | dict[str, Any] | None = None,
        mat_layers: Sequence[int] = (-3, -2),
        pooling: str = "cls",
        translation_init: str = "identity",
        head_dropout: float = 0.1,
        **kwargs: Any,
    ):
        if encoder_config is None:
            encoder_config = {"model_type": "bert"}
        if isinstance(encoder_config, dict):
            encoder_config = AutoConfig.for_model(**encoder_config)
        check_choice("the encoder's model_type", encoder_config.model_type, _LAYERS)
        check_choice("pooling", pooling, ("cls", "pooler"))
        check_choice("translation_init", translation_init, ("identity", "random", "zero"))
        depth = encoder_config.num_hidden_layers
        self.encoder_config = encoder_config
        self.mat_layers = sorted({layer % depth for layer in mat_layers if -depth <= layer < depth})
        if len(self.mat_layers) < len(mat_layers):
            raise ValueError(
                f"mat_layers must be different layers, numbered 0 to {depth - 1} or, from the end, {-depth} to -1, "
                f"not {tuple(mat_layers)}"
            )
        self.pooling, self.translation_init, self.head_dropout = pooling, translation_init, head_dropout
        super().__init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """Size of hidden states."""
        return int(self.encoder_config.hidden_size)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return int(self.encoder_config.num_hidden_layers)


class TranslationHead(nn.Module):
    """The translation head of a MAT layer: LN(h + M^tr (h W_v) W_o); 2 d² + 4 d parameters (1.18 M for d = 768)."""

    def __init__(self, hidden_size: int, eps: float, dropout: float, how: str):
        super().__init__()
        self.how = how
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=eps)

    @torch.no_grad()
    def reset(self, std: float) -> None:
        """Initialises the parameters; ``std`` is the standard deviation of random ones."""
        for linear in (self.value, self.output):
            if self.how == "random":
                nn.init.normal_(linear.weight, std=std)
            else:
                nn.init.eye_(linear.weight)
            nn.init.zeros_(linear.bias)
        nn.init.constant_(self.LayerNorm.weight, 0.0 if self.how == "zero" else 1.0)
        nn.init.zeros_(self.LayerNorm.bias)

    def forward(self, hidden_states: torch.Tensor, translation: TranslationAttention | None) -> torch.Tensor:
        """Returns h_th for hidden states of shape (batch, n, d). Without a matrix M^tr is the identity (MART-PLB)."""
        values = self.value(hidden_states)
        if translation is not None:
            values = translation.apply(values)
        return self.LayerNorm(hidden_states + self.dropout(self.output(values)))


class _MixedAttention(nn.Module):
    """What makes an encoder's layer a MAT layer; mixed into the class of that layer.

    The pretrained parameters keep their names, so that an encoder's checkpoint loads as it is.
    """

    attention: Any  # these four are the layer's own
    feed_forward_chunk: Any
    chunk_size_feed_forward: int
    seq_len_dim: int

    def __init__(self, config: PreTrainedConfig, layer_idx: int, translation_init: str):
        super().__init__(config, layer_idx=layer_idx)
        self.translation = TranslationHead(
            config.hidden_size, config.layer_norm_eps, config.hidden_dropout_prob, translation_init
        )

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *unused: Any,
        translation: TranslationAttention | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        kwargs = {name: value for name, value in kwargs.items() if name not in _DECODER_ONLY}
        multi_head = self.attention(hidden_states, attention_mask, **kwargs)[0]
        mixed = multi_head + self.translation(hidden_states, translation)
        return apply_chunking_to_forward(self.feed_forward_chunk, self.chunk_size_feed_forward, self.seq_len_dim, mixed)


class BertMatLayer(_MixedAttention, BertLayer):
    """A layer of BERT with a translation head."""


class RobertaMatLayer(_MixedAttention, RobertaLayer):
    """A layer of RoBERTa with a translation head."""


class XLMRobertaMatLayer(_MixedAttention, XLMRobertaLayer):
    """A layer of XLM-RoBERTa with a translation head."""


_LAYERS: dict[str, type[_MixedAttention]] = {
    "bert": BertMatLayer, "roberta": RobertaMatLayer, "xlm-roberta": XLMRobertaMatLayer,
}  # fmt: skip


@dataclass
class RankingOutput(ModelOutput):
    """What :class:`MartForRanking` returns.

    Attributes:
        scores: float32 of shape (documents,).
        passages: float32 of shape (batch,): the score that each passage would have on its own.
        hidden_states: Those of the embeddings and of each layer, if asked for.
    """

    scores: torch.Tensor | None = None
    passages: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


class _MartPreTrainedModel(PreTrainedModel):
    config_class = MartConfig
    base_model_prefix = "mart"
    supports_gradient_checkpointing = True
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _no_split_modules = ["BertLayer", "RobertaLayer", "XLMRobertaLayer", *(c.__name__ for c in _LAYERS.values())]

    def _init_weights(self, module: nn.Module) -> None:
        if module is getattr(self, "score", None):
            init.normal_(module.weight, mean=0.0, std=0.02)
            init.zeros_(module.bias)


class MartModel(_MartPreTrainedModel):
    """An encoder some of whose layers are MAT layers."""

    def __init__(self, config: MartConfig):
        super().__init__(config)
        encoder = config.encoder_config
        self.encoder = AutoModel.from_config(
            encoder, add_pooling_layer=config.pooling == "pooler", trust_remote_code=False
        )
        make = _LAYERS[encoder.model_type]
        for i in config.mat_layers:
            self.encoder.encoder.layer[i] = make(encoder, i, config.translation_init)
        self.post_init()
        for head in self.translation_heads():
            head.reset(getattr(encoder, "initializer_range", 0.02))

    def translation_heads(self) -> list[TranslationHead]:
        """Returns the translation heads of the MAT layers in order."""
        return [self.encoder.encoder.layer[i].translation for i in self.config.mat_layers]

    def get_input_embeddings(self) -> nn.Module:
        """Returns the word embeddings."""
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the word embeddings."""
        self.encoder.set_input_embeddings(value)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        translation: TranslationAttention | None = None,
        output_hidden_states: bool = False,
    ) -> BaseModelOutputWithPooling:
        """Encodes passages.

        Args:
            input_ids: (batch, n).
            attention_mask: (batch, n), 0 for padding.
            token_type_ids: (batch, n), for encoders that tell the two texts apart.
            translation: M^tr of the batch; ``None`` for the identity.
            output_hidden_states: Whether to return the hidden states of all layers.
        """
        mixed = {"translation": translation} if translation is not None and self.config.mat_layers else {}
        return self.encoder(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            output_hidden_states=output_hidden_states,
            **mixed,
        )


class MartForRanking(_MartPreTrainedModel):
    """MART: scores (query, document) pairs.

    A document's passages are encoded with the query, each passage is represented by its first token, and a linear
    layer scores the mean.

    .. cite.dblp:: conf/cikm/HuangBSRA21
    """

    def __init__(self, config: MartConfig):
        super().__init__(config)
        self.mart = MartModel(config)
        self.dropout = nn.Dropout(config.head_dropout)
        self.score = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @classmethod
    def from_encoder(
        cls,
        name: str | os.PathLike[str],
        mat_layers: Sequence[int] = (-3, -2),
        *,
        pooling: str = "cls",
        translation_init: str = "identity",
        seed: int = 42,
        **kwargs: Any,
    ) -> MartForRanking:
        """Builds on a pretrained encoder; what is new is initialised.

        Args:
            name: What :func:`pyterrier_mart.encoders.resolve` takes.
            mat_layers: The layers with a translation head; none for the plain encoder.
            pooling: See :class:`MartConfig`.
            translation_init: See :class:`MartConfig`.
            seed: Seed of what is initialised at random. The state of torch's generator is not changed.
            **kwargs: For ``from_pretrained`` of transformers (``revision``, ``attn_implementation``, ``token``, ...).

        Raises:
            ValueError: If the encoder is of another kind or lacks weights, or a layer does not exist.
            OSError: If there is no such encoder.
        """
        source = encoders.find(name)
        # Checked before weights are loaded, which may take long.
        config = MartConfig(
            load_config(source, **kwargs), mat_layers, pooling=pooling, translation_init=translation_init
        )
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed, which seeds the generators of other devices too.
            torch.default_generator.manual_seed(seed)
            with reading(source.path, "the weights"):
                encoder, found = AutoModel.from_pretrained(
                    source.path, add_pooling_layer=pooling == "pooler", output_loading_info=True,
                    **{"dtype": torch.float32, **kwargs, **source.weights},
                )  # fmt: skip
            if lost := [key for key in found["missing_keys"] if not key.startswith("pooler.")]:
                raise ValueError(f"{name} lacks weights of its encoder: {', '.join(sorted(lost))}")
            config._attn_implementation = encoder.config._attn_implementation
            torch.default_generator.manual_seed(seed)
            model = cls(config)
            torch.default_generator.manual_seed(seed)  # the linear layer starts alike whatever MAT layers there are
            nn.init.normal_(model.score.weight, std=0.02)
        # Translation heads are new. Other weights that do not fit are an error.
        model.mart.encoder.load_state_dict({**model.mart.encoder.state_dict(), **encoder.state_dict()})
        return model.eval()

    def forward(
        self,
        input_ids: torch.Tensor,
        documents: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        translation: TranslationAttention | None = None,
        output_hidden_states: bool = False,
    ) -> RankingOutput:
        """Scores documents.

        Args:
            input_ids: (batch, n): passages, each with its query.
            documents: (batch,): the document of each passage, numbered from 0 in the batch, none left out.
            attention_mask: (batch, n), 0 for padding.
            token_type_ids: (batch, n).
            translation: M^tr of the batch; ``None`` for the identity.
            output_hidden_states: Whether to return the hidden states of all layers.
        """
        out = self.mart(input_ids, attention_mask, token_type_ids, translation, output_hidden_states)
        pooled = out.pooler_output if self.config.pooling == "pooler" else out.last_hidden_state[:, 0]
        # Scores are compared: in half precision, many would be equal.
        with torch.autocast(pooled.device.type, enabled=False):
            pooled = pooled.float()
            n = int(documents.max()) + 1 if len(documents) else 0
            counts = torch.bincount(documents, minlength=n).to(pooled.dtype).unsqueeze(1)
            means = pooled.new_zeros(n, pooled.shape[1]).index_add(0, documents, pooled) / counts
            weight, bias = self.score.weight.float(), self.score.bias.float()
            scores = nn.functional.linear(self.dropout(means), weight, bias).squeeze(1)
            passages = nn.functional.linear(pooled.detach(), weight, bias).squeeze(1).detach()
            return RankingOutput(scores, passages, out.hidden_states)


AutoConfig.register("mart", MartConfig)
AutoModel.register(MartConfig, MartModel)
