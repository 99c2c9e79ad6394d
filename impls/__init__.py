"""Production kernels, one package an operator. Nothing here imports the harness or the oracles."""
