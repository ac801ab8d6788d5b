"""Recordings whose fault is known: SIMULATED trainings, each with a fault and without it. Needs no PyTorch.

Tests hold the verdict to them, and lessons give each student one to examine.

    planted = write("loader", 7, folder)
    planted.path, planted.fault, planted.true_gain
"""

from labtrace.planted.faults import BEHIND as BEHIND
from labtrace.planted.faults import FAULTS as FAULTS
from labtrace.planted.faults import Fault as Fault
from labtrace.planted.faults import Planted as Planted
from labtrace.planted.faults import write as write
