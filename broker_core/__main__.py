"""`python -m leveret`: the command `leveret`."""

from __future__ import annotations

import sys

from leveret.server.cli import main

sys.exit(main())
