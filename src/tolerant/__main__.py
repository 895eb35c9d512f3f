"""`python -m tolerant` is the `tolerant` command."""

from tolerant.cli import main

if __name__ == "__main__":
    main()
