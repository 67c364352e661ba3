"""NumPy's arrays by the type of what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Int16 = NDArray[np.int16]
Int8 = NDArray[np.int8]
Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Bytes = NDArray[np.uint8]
