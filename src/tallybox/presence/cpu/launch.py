"""The launchers of the presence counter's kernels on the CPU."""

from tallybox.kernels.cpu.launching import Launcher
from tallybox.presence.cpu.backward import presence_backward_kernel
from tallybox.presence.cpu.forward import presence_forward_kernel, saved_size

state_size, forward, backward = Launcher(
    presence_forward_kernel,
    presence_backward_kernel,
    group_images=1,
    saved_size=saved_size,
    steps=lambda boxes: 20 * (boxes + 4) ** 2,  # over pairs
).launchers()
