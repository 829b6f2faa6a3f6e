"""Doors: protocol front ends that turn bytes into ``wire`` and ``wire`` into bytes, and decide nothing."""
