"""The self-test as a program: `python -m agtape.selftest gpu` compares every op with the CPU's; exit status 0 or 1."""

import sys

if __name__ == "__main__":
    from agtape.kernelcheck.report import main

    sys.exit(main(sys.argv[1:]))
