"""The launchers of the counter's kernels on the CPU."""

from tallybox.counter.cpu.backward import count_backward_kernel
from tallybox.counter.cpu.forward import count_forward_kernel, saved_size
from tallybox.kernels.cpu.launching import Launcher
from tallybox.kernels.cpu.vectors import LANES

state_size, forward, backward = Launcher(
    count_forward_kernel,
    count_backward_kernel,
    group_images=LANES,
    saved_size=saved_size,
    steps=lambda boxes: LANES * (boxes + 4) ** 3,  # over pairs and boxes
).launchers()
