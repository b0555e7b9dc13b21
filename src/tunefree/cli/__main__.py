"""`python -m tunefree.cli`."""

import sys

from tunefree.cli import main

sys.exit(main())
