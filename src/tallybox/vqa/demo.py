"""`tallybox vqa demo`: simulate a data set, prepare it, train four models on it side by side and score them."""

import signal
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import current_thread, main_thread

import torch

from tallybox.errors import TallyboxError
from tallybox.vqa.batches import open_training_data
from tallybox.vqa.config import ModelConfig, ModelName, TrainingConfig, VqaConfig
from tallybox.vqa.data.photos import OnProgress
from tallybox.vqa.data.prepare import official_files, prepare
from tallybox.vqa.evaluation import Scores, evaluate_runs
from tallybox.vqa.simulation.simulate import FEATURES, simulate
from tallybox.vqa.simulation.world import World
from tallybox.vqa.training import train

MODELS: tuple[ModelName, ...] = ("baseline", "nms", "counter", "presence")
# Large enough that counts cannot be memorised.
WORLD = World(train_photos=9600)
# The values of configs/vqa_demo.toml, which gives reasons.
CONFIG = VqaConfig(
    ModelConfig(embedding=32, question=64, attention=128, classifier=128, dropout=0.0, presence_sharpness=4),
    TrainingConfig(batch=256, epochs=12, learning_rate=0.006, half_life=1000, count_rate=2.0),
)


def run_demo(
    folder: Path,
    *,
    device: torch.device,
    world: World = WORLD,
    config: VqaConfig = CONFIG,
    on_progress: OnProgress = lambda step, done, total: None,
) -> dict[str, list[Scores]]:
    """Run all steps in a folder and return the scores by model; the same call resumes after an interruption."""
    files, prepared = folder / "files", folder / "prepared"
    if not (files / FEATURES).exists():
        unfinished = folder / "files.unfinished"
        simulate(unfinished, world, partial(on_progress, "photos"))
        unfinished.rename(files)
    prepare(official_files(files), [files / FEATURES], prepared, on_progress=on_progress)
    _train_models(folder, device, config, on_progress)
    runs = [folder / name for name in MODELS]
    scored = evaluate_runs(runs, split="val", device=device, on_progress=on_progress)
    return {name: group.scores for name, group in scored.items()}


def _train_models(folder: Path, device: torch.device, config: VqaConfig, on_progress: OnProgress) -> None:
    """Train each model in a process of its own, one process per core: a step is too small for two threads."""
    at_once = 1 if device.type == "cuda" else torch.get_num_threads()
    spawn = get_context("spawn")
    waiting = list(MODELS)  # taken from the end: the slowest starts first
    running: dict[Connection, tuple[ModelName, SpawnProcess]] = {}  # by the connection that its progress comes through
    steps = dict.fromkeys(MODELS, 0)
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                receiver, sender = spawn.Pipe(duplex=False)
                name = waiting.pop()
                process = spawn.Process(target=_train_model, args=(sender, folder, name, device, config))
                start_uninterrupted(process)
                sender.close()
                running[receiver] = name, process
            ready = wait(list(running))
            for receiver in [connection for connection in running if connection in ready]:
                name, process = running[receiver]
                try:
                    message = receiver.recv()
                except EOFError:
                    process.join()
                    if process.exitcode:
                        reason = f"training {name} ended with status {process.exitcode}; repeat the command to resume"
                        raise TallyboxError(reason) from None
                    del running[receiver]
                    continue
                if isinstance(message, Exception):
                    raise message
                steps[name], total = message
                on_progress(f"training {len(MODELS)} models", sum(steps.values()), len(MODELS) * total)
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def start_uninterrupted(process: SpawnProcess) -> None:
    """Start a process that ignores keyboard interrupts from its start, also while it imports torch."""
    if current_thread() is not main_thread():  # which alone may set handlers
        process.start()
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)


def _train_model(sender: Connection, folder: Path, name: ModelName, device: torch.device, config: VqaConfig) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # not inherited on Windows; the parent terminates this process
    torch.set_num_threads(1)
    prepared = folder / "prepared"
    described = {"prepared": str(prepared.resolve()), "split": "train"}
    model_config = replace(config, model=replace(config.model, name=name))
    try:
        data = open_training_data(prepared, "train")
        end = train(
            data,
            folder / name,
            model_config,
            device=device,
            described=described,
            on_progress=lambda done, total: sender.send((done, total)),
        )
        sender.send((end.steps, end.steps))
    except (TallyboxError, OSError) as error:
        with suppress(BrokenPipeError):  # where the parent was killed
            sender.send(error)
