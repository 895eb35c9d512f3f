"""The GPU kernels. `loss` calls `launch`, which starts the kernels of `loss_kernels`, `sums` and `live`.

Triton is imported with the modules that hold kernels, when a loss first needs them.
"""
