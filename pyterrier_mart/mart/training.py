"""Training MART on judged queries: pairs of a relevant and another document, around transformers' Trainer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from safetensors import SafetensorError
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from pyterrier_mart.files import atomic_file
from pyterrier_mart.mart.encoding import Batch, PairEncoder
from pyterrier_mart.mart.modeling import MartForRanking, quiet

__all__ = ["Example", "TrainingOptions", "examples", "train"]

_LOSSES = ("pairwise-cross-entropy", "pairwise-softmax")
_MEASURE = "AP@100"
_SETTINGS = "fit.json"
_FINAL = "final.safetensors"


@dataclass(frozen=True)
class TrainingOptions:
    """How :meth:`MARTReRanker.fit` trains. The defaults are those of the MART paper, section 5.

    Attributes:
        epochs: At most so many; an epoch is every relevant document of every query once.
        patience: Stop after so many epochs without a better AP@100 of the re-ranked validation queries. The best
            epoch's weights are kept.
        learning_rate: Of the pretrained parameters.
        new_learning_rate: Of the translation heads and the linear layer; ``None`` for the same.
        batch_size: Pairs a step and device.
        accumulation: Steps whose gradients are added up before the weights change.
        warmup: Share of all steps in which the learning rate rises from 0; after that it stays (Adam without decay).
        negatives: Pairs for each relevant document and epoch, with other documents that are not relevant.
        negative_depth: Negatives are drawn from so many first documents of the first stage.
        validation_depth: So many first documents are re-ranked in validation.
        validation_queries: So many of the validation queries are used, chosen by the seed; ``None`` for all, 0 for
            none: all epochs are run and the last weights are kept. Where computing is slow, validation may take longer
            than training; few queries choose a poor epoch.
        loss: ``"pairwise-cross-entropy"``, -log p of the relevant document where p is the softmax over the two scores,
            or ``"pairwise-softmax"``, 1 - p.
        freeze_layers: The embeddings and so many first layers keep their weights (0: only the embeddings, ``None``:
            nothing is frozen).
        max_grad_norm: Gradients are scaled down to this norm.
        seed: Of the order, the negatives and dropout.
        output_dir: Where checkpoints are kept. Training that was interrupted goes on from there. ``None`` for a
            temporary directory.
        trainer: More arguments of ``transformers.TrainingArguments``, such as ``{"bf16": True}``, ``{"report_to":
            ["wandb"]}`` or ``{"gradient_checkpointing": True}``.
    """

    epochs: int = 100
    patience: int = 20
    learning_rate: float = 2e-5
    new_learning_rate: float | None = None
    batch_size: int = 2
    accumulation: int = 8
    warmup: float = 0.0
    negatives: int = 1
    negative_depth: int = 500
    validation_depth: int = 100
    validation_queries: int | None = None
    loss: str = "pairwise-cross-entropy"
    freeze_layers: int | None = None
    max_grad_norm: float = 1.0
    seed: int = 42
    output_dir: str | os.PathLike[str] | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one is out of range; the message names it.
        """
        for name in ("epochs", "patience", "batch_size", "accumulation", "negatives", "negative_depth",
                     "validation_depth", "validation_queries"):  # fmt: skip
            value = getattr(self, name)
            if value in (None, 0) and value is not False and name == "validation_queries":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")
        if self.output_dir is not None and not (
            isinstance(self.output_dir, (str, os.PathLike)) and os.fspath(self.output_dir)
        ):
            raise ValueError(f"output_dir must be None or the path of a directory, not {self.output_dir!r}")
        for name in ("learning_rate", "new_learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            if not (value is None and name == "new_learning_rate") and not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        if not 0 <= self.warmup < 1:  # transformers reads 1 as one step
            raise ValueError(f"warmup must be in [0, 1), not {self.warmup!r}")
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(_LOSSES)}, not {self.loss!r}")
        if self.freeze_layers is not None and (isinstance(self.freeze_layers, bool) or self.freeze_layers < 0):
            raise ValueError(f"freeze_layers must be None or a whole number >= 0, not {self.freeze_layers!r}")

    def short(self) -> str:
        """Returns the values that are not the default, as a call."""
        changed = (
            f"{f.name}={getattr(self, f.name)!r}"
            for f in dataclasses.fields(self)
            if f.name != "trainer" and getattr(self, f.name) != f.default
        )
        return f"TrainingOptions({', '.join(changed)})"

    def as_json(self) -> dict[str, Any]:
        """Returns what changes the result, as JSON values."""
        values = dataclasses.asdict(self)
        values.pop("output_dir")
        return {**values, "trainer": {name: repr(value) for name, value in sorted(self.trainer.items())}}


@dataclass(frozen=True)
class Example:
    """A query with a relevant document and those that negatives are drawn from."""

    query: str
    positive: str
    negatives: tuple[str, ...]


def examples(
    results: pd.DataFrame,
    qrels: pd.DataFrame,
    text_field: str,
    depth: int,
    load: Callable[[pd.DataFrame], Any] | None = None,
) -> list[Example]:
    """Makes training examples of a first stage's results and judgments.

    Args:
        results: Columns qid, query, docno, ``text_field``, and rank or score if there is an order.
        qrels: Columns qid, docno, label; labels above 0 are relevant, what is not judged is not.
        text_field: The column with the documents' text.
        depth: Negatives come from so many first documents of each query.
        load: Gives the text of relevant documents that the first stage missed, for rows of qid, query, docno. Without
            it they are left out, with a warning that counts them.

    Raises:
        ValueError: If no query has both a relevant document and another one.
    """
    relevant = qrels[qrels["label"] > 0][["qid", "docno"]].drop_duplicates()
    results = in_order(results).drop_duplicates(["qid", "docno"])
    # In an order of their own, so that the order of judgments does not matter.
    relevant = relevant[relevant["qid"].isin(results["qid"])].sort_values(["qid", "docno"], ignore_index=True)
    if relevant.empty:
        raise ValueError(
            f"nothing to learn from: none of the {results['qid'].nunique()} queries with results has a relevant "
            f"document (label > 0) in the {len(qrels)} judgments; are the query identifiers the same?"
        )
    queries = results.drop_duplicates("qid").set_index("qid")["query"]
    judged = relevant.merge(results[["qid", "docno", text_field]], on=["qid", "docno"], how="left", indicator=True)
    missed = judged["_merge"] == "left_only"
    if missed.any() and load is not None:
        rows = judged.loc[missed, ["qid", "docno"]].assign(query=judged.loc[missed, "qid"].map(queries))
        found = load(rows)
        if isinstance(found, (str, bytes, Mapping)) or not hasattr(found, "__len__") or len(found) != len(rows):
            raise ValueError(f"positives_text must give {len(rows)} texts, one for each docno, not {found!r:.80}")
        judged[text_field] = judged[text_field].astype(object)
        judged.loc[missed, text_field] = pd.Series(list(found), index=rows.index, dtype=object)
        missed &= ~judged[text_field].map(lambda text: bool(_text(text).strip()))
    if missed.any():
        hint = "have no text from positives_text" if load is not None else "pass positives_text to load them"
        _warn(
            f"{missed.sum()} of {len(judged)} relevant documents are not among the first stage's results and are not "
            f"trained on; {hint}"
        )
    judged = judged[~missed]
    others = results.groupby("qid", sort=False).head(depth).merge(relevant.assign(_relevant=True), how="left")
    others = others[others["_relevant"].isna()]
    negatives = {qid: tuple(_text(x) for x in group) for qid, group in others.groupby("qid", sort=False)[text_field]}
    out = [
        Example(_text(queries[qid]), _text(text), negatives[qid])
        for qid, text in zip(judged["qid"], judged[text_field], strict=True)
        if qid in negatives
    ]
    if not out:
        raise ValueError(
            "nothing to learn from: no query has both a relevant document whose text is known and one that is not "
            "relevant among the first stage's results"
        )
    return out


def validation_set(
    results: pd.DataFrame, qrels: pd.DataFrame, options: TrainingOptions
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the results and judgments that validation uses."""
    qids = np.unique(results["qid"].astype(str))
    if options.validation_queries is not None and options.validation_queries < len(qids):
        qids = np.random.default_rng(options.seed).choice(qids, options.validation_queries, replace=False)
    results = in_order(results[results["qid"].isin(qids)]).groupby("qid", sort=False).head(options.validation_depth)
    return results, qrels[qrels["qid"].isin(qids)]


def in_order(results: pd.DataFrame) -> pd.DataFrame:
    """Returns results in the order of their ranks or scores, if they have one."""
    if "rank" in results:
        return results.sort_values(["rank"], kind="stable")
    return results.sort_values(["score"], ascending=False, kind="stable") if "score" in results else results


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _warn(message: str) -> None:
    import warnings

    warnings.warn(message, stacklevel=4)


class _Pairs(torch.utils.data.Dataset):
    """(query, relevant document, other document) triples; the others are a function of seed, epoch and place."""

    def __init__(self, made: Sequence[Example], negatives: int, seed: int):
        self.examples, self.negatives, self.seed, self.epoch = made, negatives, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the Trainer's data loader."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.examples) * self.negatives

    def __getitem__(self, i: int) -> tuple[str, str, str]:
        which, n = divmod(i, self.negatives)
        example = self.examples[which]
        random = np.random.default_rng([self.seed, self.epoch, which])
        chosen = random.permutation(len(example.negatives))[n % len(example.negatives)]
        return example.query, example.positive, example.negatives[chosen]


class _MartTrainer(Trainer):
    """Trainer with MART's loss, two learning rates and validation by re-ranking."""

    def __init__(
        self, *args: Any, options: TrainingOptions, validate: Callable[[MartForRanking], float] | None, **kwargs: Any
    ):
        self.options, self.validate = options, validate
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False  # the loss is the mean over the pairs of a step

    def _prepare_inputs(self, inputs: Any) -> Any:
        return Batch(**inputs).to(self.args.device).inputs()

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the mean loss over pairs; the batch holds all relevant documents, then all others."""
        scores = model(**inputs).scores
        relevant, other = scores.chunk(2)
        if self.options.loss == "pairwise-softmax":
            return torch.sigmoid(other - relevant).mean()
        return torch.nn.functional.softplus(other - relevant).mean()

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Adam, without weight decay, with a learning rate of their own for new parameters."""
        if self.optimizer is None:
            old: list[torch.nn.Parameter] = []
            new: list[torch.nn.Parameter] = []
            network: Any = model or self.model
            for name, parameter in network.named_parameters():
                if parameter.requires_grad:
                    (new if ".translation." in name or ".score." in f".{name}" else old).append(parameter)
            rate = self.options.learning_rate
            new_rate = self.options.new_learning_rate or rate
            groups = [{"params": new, "lr": new_rate}, {"params": old, "lr": rate}]
            self.optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        return self.optimizer

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        """Returns AP@100 of the re-ranked validation queries."""
        assert self.validate is not None
        model = self.accelerator.unwrap_model(self.model)
        training = model.training
        try:
            value = self.validate(model.eval())
        finally:
            model.train(training)
        metrics = {f"{metric_key_prefix}_{_MEASURE}": value}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self._memory_tracker.stop_and_update_metrics(metrics)
        return metrics

    def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """There is none: validation re-ranks."""
        raise NotImplementedError


class _Patience(TrainerCallback):
    """Stops after so many epochs without a better value.

    Counted from the log, which a checkpoint holds: interrupted training stops where it would have without.
    """

    def __init__(self, patience: int):
        self.patience = patience

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if _epochs_without_better(state.log_history) >= self.patience:
            control.should_training_stop = True


def _epochs_without_better(log: Iterable[Mapping[str, Any]]) -> int:
    values = [entry[f"eval_{_MEASURE}"] for entry in log if f"eval_{_MEASURE}" in entry]
    return len(values) - 1 - int(np.argmax(values)) if values else 0


class _Finite(TrainerCallback):
    """Ends training that diverged, before a checkpoint is written."""

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and not torch.isfinite(parameter).all():
                raise ValueError(
                    f"training diverged in epoch {math.ceil(state.epoch)}: {name} is no longer finite; try a lower "
                    "learning_rate, or another precision than float16 if that was asked for"
                )


class _Progress(TrainerCallback):
    """A progress bar with the loss and the validation queries' AP@100, in notebooks too."""

    def __init__(self, name: str = "MART"):
        self.name, self.shown = name, dict[str, str]()
        self.bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar = pt.tqdm(total=state.max_steps, initial=state.global_step, desc=f"{self.name}: training", unit="step")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._describe(f"epoch {int(state.epoch or 0) + 1} of {math.ceil(args.num_train_epochs)}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.update(state.global_step - self.bar.n)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._describe("validation" if args.eval_strategy != "no" else "training")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        names = {"loss": "loss", f"eval_{_MEASURE}": _MEASURE}
        self.shown.update({names[name]: f"{value:.3f}" for name, value in (logs or {}).items() if name in names})
        if self.bar is not None:
            self.bar.set_postfix(self.shown)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.close()

    def _describe(self, what: str) -> None:
        self.bar.set_description(f"{self.name}: {what}")


def freeze(model: MartForRanking, layers: int | None) -> None:
    """Lets the embeddings and the first layers keep their weights.

    Raises:
        ValueError: If there are not so many layers.
    """
    model.requires_grad_(True)
    if layers is None:
        return
    encoder = model.mart.encoder
    if layers > len(encoder.encoder.layer):
        raise ValueError(f"freeze_layers={layers}, but the encoder has {len(encoder.encoder.layer)} layers")
    encoder.embeddings.requires_grad_(False)
    for layer in encoder.encoder.layer[:layers]:
        layer.requires_grad_(False)
        if hasattr(layer, "translation"):  # what is new must be learned wherever it is
            layer.translation.requires_grad_(True)


def train(
    model: MartForRanking,
    encoder: PairEncoder,
    made: Sequence[Example],
    options: TrainingOptions,
    *,
    validate: Callable[[MartForRanking], float] | None,
    fingerprint: str,
    device: torch.device,
    verbose: bool = False,
) -> list[dict[str, Any]]:
    """Trains a model in place.

    Args:
        model: The model.
        encoder: Makes its batches.
        made: What to train on.
        options: How.
        validate: Gives AP@100 of a model; without it, training runs for all epochs and keeps the last weights.
        fingerprint: Of everything else that decides the result: initial weights, data, settings. A checkpoint
            directory with another one is refused.
        device: Where to compute.
        verbose: Whether to show progress.

    Returns:
        What was logged: loss, learning rate, validation AP@100, with epoch and step.

    Raises:
        ValueError: If ``output_dir`` holds the checkpoints of another training, or weights are no longer finite.
    """
    freeze(model, options.freeze_layers)
    keep = options.output_dir is not None
    place: Any = nullcontext(options.output_dir) if keep else _temporary()
    with place as folder:
        directory = Path(folder).expanduser().absolute()
        done = _settings(directory, options, fingerprint)
        final = directory / _FINAL
        if done is not None and final.exists():
            try:
                _load(model, final)
            except (SafetensorError, RuntimeError) as err:
                raise ValueError(
                    f"output_dir: {final} is damaged ({err}); delete {directory} or name another directory"
                ) from err
            return done
        arguments: dict[str, Any] = {
            "output_dir": os.fspath(directory),
            "num_train_epochs": options.epochs,
            "per_device_train_batch_size": options.batch_size,
            "gradient_accumulation_steps": options.accumulation,
            "learning_rate": options.learning_rate,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": options.warmup,
            "max_grad_norm": options.max_grad_norm,
            "seed": options.seed,
            "data_seed": options.seed,
            "save_strategy": "epoch",
            "save_total_limit": 2,
            "logging_strategy": "epoch",
            "eval_strategy": "epoch" if validate else "no",
            "load_best_model_at_end": validate is not None,
            "metric_for_best_model": _MEASURE if validate else None,
            "greater_is_better": True if validate else None,
            "report_to": "none",
            "remove_unused_columns": False,
            "disable_tqdm": True,
            "use_cpu": device.type == "cpu",
            "dataloader_pin_memory": False,
            "label_names": [],
        }
        last = _last_checkpoint(directory)
        if last is not None and validate and _epochs_without_better(last.log_history) >= options.patience:
            arguments["num_train_epochs"] = math.ceil(last.epoch or 0)  # it was about to stop
        args = TrainingArguments(**{**arguments, **options.trainer})
        args._n_gpu = min(args.n_gpu, 1)  # several GPUs: with accelerate or torchrun, a process for each
        trainer = _MartTrainer(
            model=model,
            args=args,
            train_dataset=_Pairs(made, options.negatives, options.seed),
            eval_dataset=[] if validate else None,
            data_collator=_Collate(encoder),
            callbacks=[_Finite(), *([_Patience(options.patience)] if validate else [])],
            options=options,
            validate=validate,
        )
        trainer.remove_callback(PrinterCallback)
        if verbose:
            trainer.add_callback(_Progress())
        with quiet():
            trainer.train(resume_from_checkpoint=os.fspath(_checkpoint(directory, last.global_step)) if last else None)
        log = trainer.state.log_history
        if keep and trainer.is_world_process_zero():
            _save(model, final)
            _settings(directory, options, fingerprint, log)
            for checkpoint in directory.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
                shutil.rmtree(checkpoint, ignore_errors=True)
        return log


class _Collate:
    def __init__(self, encoder: PairEncoder):
        self.encoder = encoder

    def __call__(self, triples: Iterable[tuple[str, str, str]]) -> Any:
        queries, relevant, others = map(list, zip(*triples, strict=True))
        return self.encoder.batch(self.encoder.pairs(queries + queries, relevant + others)).inputs()


def _temporary() -> Any:
    return tempfile.TemporaryDirectory(prefix="pyterrier-mart-fit-")


def _settings(
    directory: Path, options: TrainingOptions, fingerprint: str, log: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]] | None:
    """Compares what a checkpoint directory is for with this training, and says so in a new one.

    Returns:
        The log of a training that was finished.
    """
    path = directory / _SETTINGS
    mine = {"fingerprint": fingerprint, "options": options.as_json()}
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as err:
            raise ValueError(
                f"output_dir: {path} is damaged ({err}); delete {directory} or name another directory"
            ) from err
        if not isinstance(found, dict):
            raise ValueError(f"output_dir: {path} is damaged; delete {directory} or name another directory")
        if {key: found.get(key) for key in mine} != mine:
            theirs = found.get("options", {})
            differ = [key for key, value in mine["options"].items() if theirs.get(key) != value]  # type: ignore[attr-defined]
            raise ValueError(
                f"output_dir {directory} holds the checkpoints of another training (other "
                f"{', '.join(differ) or 'model, table, settings or data'}); name another directory or delete it"
            )
        if log is None:
            return found.get("log")
    elif others := sorted(directory.glob(f"{PREFIX_CHECKPOINT_DIR}-*")):
        # They would be gone on from, or deleted.
        raise ValueError(
            f"output_dir {directory} holds {others[0].name} of another program (there is no {_SETTINGS}); name another "
            "directory"
        )
    with atomic_file(path) as tmp:
        content = {**mine, "log": log} if log is not None else mine
        tmp.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return None


def _checkpoint(directory: Path, step: int) -> Path:
    return directory / f"{PREFIX_CHECKPOINT_DIR}-{step}"


def _last_checkpoint(directory: Path) -> TrainerState | None:
    """Returns the state in the last checkpoint that is complete: the Trainer writes trainer_state.json last."""
    found = [state for path in directory.glob(f"{PREFIX_CHECKPOINT_DIR}-*") if (state := _state(path))]
    last = max(found, key=lambda state: state.global_step, default=None)
    if last is not None and last.best_global_step:
        # The Trainer would ignore a best checkpoint that is not where it was, after the directory was moved.
        best = os.fspath(_checkpoint(directory, last.best_global_step))
        if last.best_model_checkpoint != best:
            last.best_model_checkpoint = best
            with atomic_file(_checkpoint(directory, last.global_step) / TRAINER_STATE_NAME) as tmp:
                last.save_to_json(os.fspath(tmp))
    return last


def _state(checkpoint: Path) -> TrainerState | None:
    try:
        return TrainerState.load_from_json(os.fspath(checkpoint / TRAINER_STATE_NAME))
    except (OSError, ValueError, TypeError):
        return None


def _save(model: MartForRanking, path: Path) -> None:
    from safetensors.torch import save_file

    with atomic_file(path) as tmp:
        save_file({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}, tmp)


def _load(model: MartForRanking, path: Path) -> None:
    from safetensors.torch import load_file

    model.load_state_dict(load_file(path))


def average_precision(frame: pd.DataFrame, qrels: pd.DataFrame) -> float:
    """Returns AP@100 of a run over the queries of the judgments."""
    measure = ir_measures.parse_measure(_MEASURE)
    run = frame.rename(columns={"qid": "query_id", "docno": "doc_id"})[["query_id", "doc_id", "score"]]
    judged = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    values = [metric.value for metric in ir_measures.iter_calc([measure], judged, run)]
    return float(np.mean(values)) if values else 0.0


def data_fingerprint(made: Sequence[Example], *frames: pd.DataFrame) -> str:
    """Returns a fingerprint of what is trained on, and of the content of frames."""
    digest = hashlib.sha256()
    for example in made:
        for text in (example.query, example.positive, *example.negatives):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(b"\0")
    for frame in frames:
        for name in sorted(set(frame) & {"qid", "query", "docno", "text", "label", "rank", "score"}):
            digest.update(name.encode())
            digest.update(pd.util.hash_pandas_object(frame[name], index=False).to_numpy().tobytes())
    return digest.hexdigest()[:16]
