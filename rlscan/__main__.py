"""`python -m rlscan` is the command line."""

from rlscan.cli import main

if __name__ == "__main__":
    main()
