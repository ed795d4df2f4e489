"""Prep on a Spark cluster: the readers, counters and encoders of the local engine, run in Spark's Python workers.

What leaves the machines' disks is small: counts of distinct values go through one shuffle, the driver gets numbers
and file names. Wide rows stay in staged files in the scratch folder, which every worker must see.
"""
