"""The last module the fork server imports: what every job would otherwise do again."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

from synora.batch.execute import software

software()
# Everything imported so far lives as long as the process. Taking it out of the collector's sight saves each child a
# tenth of a second a collection, and the memory pages that a collection would touch, and so copy.
gc.freeze()
if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    # The server owns nothing that needs an orderly end, and taking torch apart holds the user's prompt back for most
    # of a second: the pool's process waits for it.
    atexit.register(os._exit, 0)
    # It ends when the pool's process does. A scheduler that signals every process of a job, or a terminal that is
    # closed, must not end it earlier: its children, which would die with it, are to save what they have.
    for _name in ("SIGTERM", "SIGHUP", "SIGUSR2"):
        signal.signal(getattr(signal, _name), signal.SIG_IGN)
