"""python -m torchreel: the command line."""

import sys

from torchreel.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
