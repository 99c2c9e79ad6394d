"""Float64 references, contracts and error bounds, one module an operator. Imports torch only."""
