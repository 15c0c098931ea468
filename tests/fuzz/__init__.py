"""A fuzzer of a live broker process: `python -m tests.fuzz`, or `make fuzz SECONDS=600`."""
