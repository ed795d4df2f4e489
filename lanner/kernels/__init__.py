"""The numeric heart: one folder an operation, each with a reference, a CPU and (later) a GPU form."""
