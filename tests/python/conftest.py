"""What the tests share: a seed that is printed, and matrices drawn from it."""

import os
import random

import numpy as np
import pytest


@pytest.fixture
def seed() -> int:
    """New for every run; FLASHOVERLAP_SEED repeats one."""
    seed = int(os.environ.get("FLASHOVERLAP_SEED", random.randrange(2**32)))
    print(f"FLASHOVERLAP_SEED={seed}")
    return seed


@pytest.fixture
def generator(seed) -> np.random.Generator:
    return np.random.default_rng(seed)
