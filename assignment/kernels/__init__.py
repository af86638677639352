"""Kernels: what the other units do in PyTorch, written for the chip."""
