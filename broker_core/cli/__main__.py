"""`python -m broker_core.cli`: the command `leveret`."""

from __future__ import annotations

import sys

from broker_core.cli import main

sys.exit(main())
