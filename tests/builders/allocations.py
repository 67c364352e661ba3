"""Allocator events as TensorFlow's host tracer writes them: on the threads of the executor, texts as
references into the plane's table, and the free without op, type or region."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.builders.xspace import Line, Plane, Ref, Signed

CAPACITY = 16 << 30


@dataclass
class Allocator:
    """A counter like the allocator's own: what is allocated, and the most that ever was."""

    line: Line
    name: str = "GPU_0_bfc"
    live: int = 0
    peak: int = 0
    capacity: int = CAPACITY
    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)

    def allocate(
        self,
        time_ns: int,
        address: int,
        requested: int,
        op: str,
        *,
        dtype: int = 1,
        region: str = "output",
        shape: str = "[]",
        rounded: int | None = None,
        on: Line | None = None,
    ) -> None:
        """`dtype` is TensorFlow's number: 1 float, 19 half."""
        size = -(-requested // 256) * 256 if rounded is None else rounded
        self.blocks[address] = (requested, size)
        self.live += size
        self.peak = max(self.peak, self.live)
        more = {"tf_op": Ref(op), "region_type": Ref(region), "shape": Ref(shape)}
        self._event("MemoryAllocation", time_ns, address, requested, size, dtype, more, on)

    def free(self, time_ns: int, address: int, *, on: Line | None = None) -> None:
        requested, size = self.blocks.pop(address)
        self.live -= size
        self._event("MemoryDeallocation", time_ns, address, requested, size, 0, {}, on)

    def _event(
        self,
        name: str,
        time_ns: int,
        address: int,
        requested: int,
        size: int,
        dtype: int,
        more: dict[str, Ref],
        on: Line | None,
    ) -> None:
        (on or self.line).event(
            name,
            time_ns,
            0,
            {
                "allocator_name": Ref(self.name),
                "bytes_reserved": Signed(0),
                "bytes_allocated": Signed(self.live),
                "bytes_available": Signed(self.capacity - self.live),
                "fragmentation": 0.25,
                "peak_bytes_in_use": Signed(self.peak),
                "requested_bytes": Signed(requested),
                "allocation_bytes": Signed(size),
                "addr": Signed(address),
                **more,
                "id": Signed(0),
                "data_type": Signed(dtype),
            },
        )


def plane_of(plane: Plane, threads: int = 2) -> list[Line]:
    """Threads of an executor."""
    return [plane.line(7 + at, f"tf_Compute/{100 + at}") for at in range(threads)]
