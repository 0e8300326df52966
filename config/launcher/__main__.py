"""Entry point: `python3 config/launcher`."""

import importlib
import sys
from pathlib import Path

# Run as a folder, Python puts that folder first; the package needs the checkout there.
sys.path[0] = str(Path(__file__).resolve().parents[2])
main = importlib.import_module("config.launcher.main").main

sys.exit(main(sys.argv[1:]))
