"""Makes the helpers beside these tests importable (`from dense_optimizers import ...`)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
