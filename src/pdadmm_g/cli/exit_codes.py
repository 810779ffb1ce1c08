"""Exit codes of the command beside 0: success."""

from __future__ import annotations

#: Wrong input, numerical failure (the best model was kept), a worker lost, interrupted.
EXIT_INPUT, EXIT_FAILURE, EXIT_PEER_LOST, EXIT_INTERRUPTED = 2, 3, 4, 130
