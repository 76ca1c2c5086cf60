"""CPU kernels from torch's own operations, chosen so that a row's bits do not depend on its batch."""
