"""Run the commands that the docs show and keep what they print, in docs/outputs, and draw, in docs/figures.

    python docs/outputs.py               # all, three minutes
    python docs/outputs.py fit count     # those whose name starts so
    python docs/outputs.py screenshots   # of pages; needs Chromium

Pages include the files. Run it after a change of what a command prints.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from PIL import Image
from playwright.sync_api import sync_playwright

import tallybox

ROOT = Path(__file__).parent.parent
OUTPUTS = Path(__file__).parent / "outputs"
COMMANDS = {
    "count": "tallybox count photos/riders_on_a_beach.jpg",
    "count-folder": "tallybox count photos/ --total",
    "count-json": "tallybox count photos/riders_on_a_beach.jpg --category horse --json",
    "count-error": "tallybox count nosuch.jpg",
    "detect": "tallybox detect photos/ --out detections.parquet",
    "fit": "tallybox fit detections.json counts.csv --out own.safetensors",
    "evaluate": "tallybox evaluate own.safetensors detections.json other_counts.csv",
    "explain": "tallybox explain photos/lobby_with_suitcases.jpg --out page.html",
    "demo": "tallybox demo --out pages",
    "ask": 'tallybox ask photos/riders_on_a_beach.jpg "How many horses are there?"',
    "serve": "timeout --signal INT 20 tallybox serve",
    "toy": "tallybox toy train --side-length 0.5 --noise 0 --iterations 200",
    "vqa": "tallybox vqa simulate --out world --train-photos 200 --val-photos 100",
}
NEEDS = {"evaluate": "fit"}


def write_files(folder: Path) -> None:
    """Write the sample photos, and synthetic detections with two tables of counts."""
    (folder / "photos").mkdir()
    for photo in tallybox.sample_photos():
        shutil.copy(photo, folder / "photos")
    sys.path.insert(0, str(ROOT / "examples" / "count_from_coco"))
    from synthetic_files import write_files as write_synthetic

    _, counts = write_synthetic(folder)
    table = pd.read_csv(counts)
    table[table.image_id < 80].to_csv(counts, index=False)
    table[table.image_id >= 80].to_csv(folder / "other_counts.csv", index=False)


def take_screenshots(folder: Path, run: Callable[[str], object]) -> None:
    """Keep an outlined photo, and screenshots of the report, the explain page and the explorer."""
    run("tallybox count photos/ --save counted --report report.html")
    run("tallybox explain photos/lobby_with_suitcases.jpg --out page.html")
    pictures = {"counted": folder / "counted" / "buses_in_the_rain_counted.jpg"}
    service = subprocess.Popen([sys.executable, "-m", "tallybox", "serve", "--port", "8765"], cwd=folder)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            time.sleep(20)  # the service loads its models
            addresses = {"report": f"file://{folder}/report.html", "explain": f"file://{folder}/page.html"}
            for name, address in (addresses | {"explorer": "http://127.0.0.1:8765"}).items():
                page = browser.new_page(viewport={"width": 1240, "height": 840})
                page.goto(address)
                page.wait_for_timeout(8000 if name == "explorer" else 1000)
                page.screenshot(path=(made := folder / f"{name}.png"))
                pictures[name] = made
    finally:
        service.terminate()
        service.wait()
    for name, path in pictures.items():
        Image.open(path).convert("RGB").save(ROOT / "docs" / "figures" / f"{name}.webp", quality=78, method=6)


def main(starts: list[str]) -> None:
    """Run commands in a folder of their own and write what they print."""
    chosen = [name for name in COMMANDS if not starts or name.startswith(tuple(starts))]
    OUTPUTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        write_files(folder)
        environment = os.environ | {"COLUMNS": "76", "NO_COLOR": "1", "TERM": "dumb"}
        environment["PATH"] = f"{folder}:{environment['PATH']}"
        (folder / "tallybox").write_text(f'#!/bin/sh\nexec {sys.executable} -m tallybox "$@"\n')
        (folder / "tallybox").chmod(0o755)

        def run(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, shell=True, cwd=folder, env=environment, text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip

        for name in dict.fromkeys(n for one in chosen for n in (NEEDS.get(one, one), one)):
            ran = run(COMMANDS[name])
            lines = [line.rstrip() for line in ran.stdout.replace(f"{folder}/", "").splitlines()]
            text = "\n".join(lines).strip("\n")
            (OUTPUTS / f"{name}.txt").write_text(f"$ {COMMANDS[name].split('20 ')[-1]}\n{text}\n")
            print(name, ran.returncode, flush=True)
        if not starts or "screenshots" in starts:
            take_screenshots(folder, run)


if __name__ == "__main__":
    main(sys.argv[1:])
