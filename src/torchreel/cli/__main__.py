"""`python -m torchreel.cli`: the command line where its script is not on the path."""

import sys

from torchreel.cli.main import main

sys.exit(main())
