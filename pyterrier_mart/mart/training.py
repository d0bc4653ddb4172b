"""Training MART around transformers' Trainer: pairs of a relevant and another document, loss, validation, progress."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pyterrier as pt
import torch
from accelerate.utils import broadcast, broadcast_object_list
from safetensors import SafetensorError
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from pyterrier_mart.devices import keeping_random_state, quiet
from pyterrier_mart.mart.checkpoints import Checkpoints
from pyterrier_mart.mart.encoding import Batch, PairEncoder
from pyterrier_mart.mart.examples import MEASURE, Example
from pyterrier_mart.mart.modeling import MartForRanking
from pyterrier_mart.mart.options import TrainingOptions

__all__ = ["train"]


class Pairs(torch.utils.data.Dataset):
    """(query, relevant document, other document) triples; the others are a function of seed, epoch and place."""

    def __init__(self, examples: Sequence[Example], negatives: int, seed: int):
        self.examples, self.negatives, self.seed = examples, negatives, seed
        # Shared with the processes of a data loader, which may be older than the epoch.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        """The number of epochs before this one."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Called by the Trainer's data loader."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.examples) * self.negatives

    def __getitem__(self, i: int) -> tuple[str, str, str]:
        which, n = divmod(i, self.negatives)
        example = self.examples[which]
        random = np.random.default_rng([self.seed, self.epoch, which])
        chosen = random.permutation(len(example.negatives))[n % len(example.negatives)]
        return example.query, example.positive, example.negatives[chosen]


class MartTrainer(Trainer):
    """Trainer with MART's loss, two learning rates and validation by re-ranking."""

    def __init__(
        self, *args: Any, options: TrainingOptions, validate: Callable[[MartForRanking], float] | None, **kwargs: Any
    ):
        self.options, self.validate = options, validate
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False  # the loss is the mean over the pairs of a step

    def _prepare_inputs(self, inputs: Any) -> Any:
        return Batch(**inputs).inputs(self.args.device)

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

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        path = os.path.join(self.args.output_dir or "", f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        try:
            super()._save_checkpoint(*args, **kwargs)
        except (OSError, RuntimeError, SafetensorError) as err:
            # What is half written takes the room that is lacking.
            shutil.rmtree(path, ignore_errors=True)
            raise OSError(
                f"cannot write the checkpoint {path} ({err}); make room there, or name another place as output_dir of "
                "the TrainingOptions. The checkpoints in an output_dir stay, and fit resumes from the last one"
            ) from err

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        """Returns AP@100 of the re-ranked validation queries."""
        assert self.validate is not None
        model = self.accelerator.unwrap_model(self.model)
        training = model.training
        try:
            value = self.validate(model.eval())
        finally:
            model.train(training)
        # One value for all processes, or some would stop earlier than others.
        value = float(broadcast_object_list([value])[0])
        metrics = {f"{metric_key_prefix}_{MEASURE}": value}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self._memory_tracker.stop_and_update_metrics(metrics)
        return metrics


class Patience(TrainerCallback):
    """Stops after a number of epochs without a better value.

    Counted from the log, which a checkpoint holds: interrupted training stops where it would have without.
    """

    def __init__(self, patience: int):
        self.patience = patience

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if epochs_without_better(state.log_history) >= self.patience:
            control.should_training_stop = True


def epochs_without_better(log: Iterable[Mapping[str, Any]]) -> int:
    """Returns how many epochs have passed since the best value in a log."""
    values = [entry[f"eval_{MEASURE}"] for entry in log if f"eval_{MEASURE}" in entry]
    return len(values) - 1 - int(np.argmax(values)) if values else 0


class Finite(TrainerCallback):
    """Ends training that diverged, before a checkpoint is written."""

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and not torch.isfinite(parameter).all():
                raise ValueError(
                    f"training diverged in epoch {math.ceil(state.epoch)}: {name} is no longer finite; try a lower "
                    "learning_rate, or another precision than float16 if that was asked for"
                )


class Progress(TrainerCallback):
    """A progress bar with the loss and the validation queries' AP@100, in notebooks too."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self.bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar = pt.tqdm(total=state.max_steps, initial=state.global_step, desc="MART: training", unit="step")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.set_description(f"MART: epoch {int(state.epoch or 0) + 1} of {math.ceil(args.num_train_epochs)}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.update(state.global_step - self.bar.n)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.set_description("MART: validation" if args.eval_strategy != "no" else "MART: training")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        names = {"loss": "loss", f"eval_{MEASURE}": MEASURE}
        self.shown.update({names[name]: f"{value:.3f}" for name, value in logs.items() if name in names})
        self.bar.set_postfix(self.shown)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.close()


def collate(encoder: PairEncoder, triples: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Makes a batch of all relevant documents, then all others."""
    queries, relevant, others = map(list, zip(*triples, strict=True))
    return encoder.batch(encoder.pairs(queries + queries, relevant + others)).inputs()


def freeze(model: MartForRanking, layers: int | None) -> None:
    """Lets the embeddings and the first layers keep their weights.

    Raises:
        ValueError: If there are fewer layers.
    """
    model.requires_grad_(True)
    if layers is None:
        return
    encoder = model.mart.encoder
    if layers > len(encoder.encoder.layer):
        raise ValueError(f"freeze_layers must be at most {len(encoder.encoder.layer)}, the encoder's, not {layers}")
    encoder.embeddings.requires_grad_(False)
    for layer in encoder.encoder.layer[:layers]:
        layer.requires_grad_(False)
        if hasattr(layer, "translation"):  # what is new must be learned wherever it is
            layer.translation.requires_grad_(True)


def train(
    model: MartForRanking,
    encoder: PairEncoder,
    examples: Sequence[Example],
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
        examples: What to train on.
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
        OSError: If a checkpoint cannot be written.
    """
    freeze(model, options.freeze_layers)
    keep = options.output_dir is not None
    place: Any = nullcontext(options.output_dir) if keep else tempfile.TemporaryDirectory(prefix="mart-fit-")
    with place as folder:
        checkpoints = Checkpoints(folder, {"fingerprint": fingerprint, "options": options.as_json()})
        if checkpoints.finished(model):
            return checkpoints.log or []
        arguments: dict[str, Any] = {
            "output_dir": os.fspath(checkpoints.directory),
            "num_train_epochs": options.epochs,
            "per_device_train_batch_size": options.batch_size,
            "gradient_accumulation_steps": options.accumulation,
            "learning_rate": options.learning_rate,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": options.warmup,
            "max_grad_norm": options.max_grad_norm or 0.0,  # 0: never; the Trainer takes no None
            "seed": options.seed,
            "data_seed": options.seed,
            "save_strategy": "epoch",
            "save_total_limit": 2,
            "logging_strategy": "epoch",
            "eval_strategy": "epoch" if validate else "no",
            "load_best_model_at_end": validate is not None,
            "metric_for_best_model": MEASURE if validate else None,
            "greater_is_better": True if validate else None,
            "report_to": "none",
            "remove_unused_columns": False,
            "disable_tqdm": True,
            "use_cpu": device.type == "cpu",
            "dataloader_pin_memory": False,
            "label_names": [],
        }
        last = checkpoints.last()
        if last is not None and validate and epochs_without_better(last.log_history) >= options.patience:
            arguments["num_train_epochs"] = math.ceil(last.epoch or 0)  # it was about to stop
        args = TrainingArguments(**{**arguments, **options.trainer})
        args._n_gpu = min(args.n_gpu, 1)  # several GPUs: with accelerate or torchrun, a process for each
        with keeping_random_state(device), quiet():  # the Trainer seeds all there are
            trainer = MartTrainer(
                model=model,
                args=args,
                train_dataset=Pairs(examples, options.negatives, options.seed),
                eval_dataset=[] if validate else None,
                data_collator=partial(collate, encoder),
                callbacks=[Finite(), *([Patience(options.patience)] if validate else [])],
                options=options,
                validate=validate,
            )
            trainer.remove_callback(PrinterCallback)
            if verbose:
                trainer.add_callback(Progress())
            trainer.train(resume_from_checkpoint=os.fspath(checkpoints.path(last.global_step)) if last else None)
        # Only the first process has the best checkpoint, unless all share an output_dir.
        broadcast(model.state_dict())
        log = trainer.state.log_history
        if keep and trainer.is_world_process_zero():
            checkpoints.finish(model, log)
        return log
