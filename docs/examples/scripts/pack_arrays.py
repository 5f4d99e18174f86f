"""Pack buffers by live range and size. Install: base."""

import numpy as np

import tmmu

lower, upper, size = np.array([0, 0, 5]), np.array([5, 9, 9]), np.array([4, 8, 4])
packed = tmmu.pack(lower, upper, size, alignment=4, capacity="1KiB", minimise=True)
print(packed.offset.tolist(), packed.extent_bytes, packed.optimal)
