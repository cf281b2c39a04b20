"""The paper's toy task (section 5.1): draw its images, train models on it, sweep over its settings."""

from tallybox.toy.data import ToyImages as ToyImages
from tallybox.toy.data import draw_images as draw_images
from tallybox.toy.sweep import grid_settings as grid_settings
from tallybox.toy.sweep import run_sweep as run_sweep
from tallybox.toy.sweep import sweep_settings as sweep_settings
from tallybox.toy.training import Setting as Setting
from tallybox.toy.training import SettingResult as SettingResult
from tallybox.toy.training import ToyConfig as ToyConfig
from tallybox.toy.training import ToyTraining as ToyTraining
from tallybox.toy.training import load_layers as load_layers
from tallybox.toy.training import save_layers as save_layers
from tallybox.toy.training import train_settings as train_settings
