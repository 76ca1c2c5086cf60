"""A natural logarithm with the same bits on every machine.

Library versions differ between processors in the last bit of many values, and one bit can change which token wins.
This one uses only IEEE-754 float64 `+ - * /`, each rounded on its own (separate numpy operations are never fused), and
moves of exponent bits.  Its coefficients are those of a Taylor series, so that the number of terms describes it fully.
It is part of the versioned noise algorithm: a changed bit needs a new algorithm id.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]

_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
_LN2 = 0.6931471805599453
_SQRT2 = 1.4142135623730951
_MANTISSA = np.int64((1 << 52) - 1)
_ONE_BITS = np.int64(1023 << 52)
_TERMS = tuple(2.0 / (2 * n + 1) for n in range(10, -1, -1))


def log(x: Float64Array) -> Float64Array:
    """Natural logarithm of positive normal float64 values, element by element; relative error below 1e-15.

    x = 2**k * f with f in [√½, √2]; s = (f - 1) / (f + 1); log f = 2 s (1 + s²/3 + … + s²⁰/21) by Horner's rule.
    """
    bits = x.view(np.int64)
    exponent = ((bits >> np.int64(52)) - np.int64(1023)).astype(np.float64)
    f = ((bits & _MANTISSA) | _ONE_BITS).view(np.float64)
    is_high = f > _SQRT2
    f = np.where(is_high, f * 0.5, f)
    exponent += is_high
    s = f - 1.0
    f += 1.0
    s /= f
    z = s * s
    p = z * _TERMS[0]
    for term in _TERMS[1:-1]:
        p += term
        p *= z
    p += _TERMS[-1]
    p *= s
    exponent *= _LN2
    exponent += p
    return exponent


def log_scalar(value: float) -> float:
    """`log` of one positive number; a subnormal one counts as the smallest normal one."""
    return float(log(np.array([max(value, _SMALLEST_NORMAL)]))[0])
