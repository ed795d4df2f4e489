"""How many float32 a vector of `lanner.kernels.simd` holds, as types that Numba compiles kernels for."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.imputils import lower_constant
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

_WIDEST = 128  # lanes that still fit the registers beside a few temporaries
_NARROWEST = 64  # equal parts of a long row that are worth it: a row in two parts costs no more than in one
_LINE = 16  # float32 of a cache line


class Lanes:
    """A number of float32 lanes that kernels know when they are compiled; pass it as an argument.

    `tail` is the number of lanes of a row's last part, where that is shorter than the others.
    """

    def __init__(self, count: int, tail: int = 0) -> None:
        if count < 1:
            raise ValueError(f"a vector needs at least 1 lane, got {count}")
        self.count, self.tail = count, tail
        self._numba_type_ = LanesType(count, tail)


@cache
def lanes_for(dim: int) -> Lanes:
    """Lanes in which rows of `dim` floats are worked through: all of them, or for long rows the widest equal parts.

    Where those would be narrow (1, of a prime), parts are whole cache lines, and the last one is shorter.
    """
    equal = next(part for part in range(min(dim, _WIDEST), 0, -1) if dim % part == 0)
    if equal >= min(dim, _NARROWEST):
        return Lanes(equal)
    parts = -(-dim // _WIDEST)
    count = -(-dim // (parts * _LINE)) * _LINE
    return Lanes(count, dim - (parts - 1) * count)


class LanesType(types.Type):
    """Numba's type of a `Lanes`; carries no value at run time."""

    def __init__(self, count: int, tail: int = 0) -> None:
        self.count, self.tail = count, tail
        super().__init__(name=f"Lanes({count}, {tail})")


class PieceType(types.Type):
    """Numba's type of one part of a row whose last part is shorter; its value says whether this is the last."""

    def __init__(self, count: int, tail: int) -> None:
        self.count, self.tail = count, tail
        super().__init__(name=f"Piece({count}, {tail})")


class Vector(types.Type):
    """Numba's type of `count` float32 in registers."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Vector({count})")


@register_model(LanesType)
class _LanesModel(models.OpaqueModel):
    pass


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.FloatType(), kind.count))


@register_model(PieceType)
class _PieceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: PieceType) -> None:
        super().__init__(manager, kind, ir.IntType(1))


@typeof_impl.register(Lanes)
def _type_of_lanes(value: Lanes, _context: Any) -> LanesType:
    return value._numba_type_


@lower_constant(LanesType)
def _constant_lanes(context: Any, _builder: Any, _kind: LanesType, _value: Lanes) -> Any:
    return context.get_dummy_value()


@unbox(LanesType)
def _unbox_lanes(_kind: LanesType, _value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())
