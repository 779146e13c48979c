"""`python -m spectrope` is the command line."""

import sys

from spectrope.cli import main

sys.exit(main())
