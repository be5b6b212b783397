"""`python -m consilia`: the command, where its script is not on the path."""

from consilia.cli.main import main

raise SystemExit(main())
