"""``python -m remuda`` is ``remuda``."""

from remuda.cli.main import main

main()
