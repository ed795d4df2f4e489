"""The inner blocks of the dot interaction on explicit vector registers (Numba intrinsics).

LLVM does not keep the sums of these loops in registers by itself. Offsets are in elements of the flat array;
nothing is bounds-checked here: callers pad their scratch to whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

WIDTH = 8  # float32 lanes; on AVX-512 machines two such operations a cycle do the work of one wide one
_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, WIDTH)
_ZERO = ir.Constant(_VECTOR, [0.0] * WIDTH)


def _load(builder: Any, data: Any, at: Any, kind: Any = _VECTOR) -> Any:
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()), align=4)


def _store(builder: Any, value: Any, data: Any, at: Any) -> None:
    builder.store(value, builder.bitcast(builder.gep(data, [at]), value.type.as_pointer()), align=4)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{WIDTH}f32"), [a, b, c])


def _shuffle(builder: Any, a: Any, b: Any, lanes: range | list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), list(lanes)))


def _data(context: Any, builder: Any, signature: Any, args: Any, index: int) -> Any:
    return context.make_array(signature.args[index])(context, builder, args[index]).data


def _accumulate(builder: Any, end: Any, step: int, sums: int, body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """A loop 0, step, ... < end that carries `sums` zero-started vectors through `body(position, sums)`."""
    entry = builder.block
    loop, done = builder.append_basic_block("loop"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    position = builder.phi(_I64)
    position.add_incoming(_I64(0), entry)
    carried = [builder.phi(_VECTOR) for _ in range(sums)]
    for phi in carried:
        phi.add_incoming(_ZERO, entry)
    totals = body(position, carried)
    following = builder.add(position, _I64(step))
    position.add_incoming(following, builder.block)
    for phi, total in zip(carried, totals, strict=True):
        phi.add_incoming(total, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
    builder.position_at_end(done)
    return totals


def _below_diagonal(builder: Any, vectors: Any, first: Any) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    """Loop over (row, column) below the diagonal; yields once, inside the loop: `first` + running number, and both."""
    one = _I64(1)
    with cgutils.for_range(builder, builder.sub(vectors, one)) as rows:
        row = builder.add(rows.index, one)
        before = builder.lshr(builder.mul(row, rows.index), one)  # row * (row - 1) / 2
        start = builder.add(first, before)
        with cgutils.for_range(builder, row) as columns:
            yield builder.add(start, columns.index), (row, columns.index)


def _horizontal(builder: Any, sums: list[Any]) -> Any:
    """One vector of the lane sums of 8 vectors, by three rounds of pairwise additions."""
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=True)
        even, odd = range(0, 2 * WIDTH, 2), range(1, 2 * WIDTH, 2)
        sums = [builder.fadd(_shuffle(builder, a, b, even), _shuffle(builder, a, b, odd)) for a, b in pairs]
    return sums[0]


@intrinsic
def copy(typingctx: Any, source: Any, source_at: Any, target: Any, target_at: Any, count: Any) -> Any:
    """Copy `count` float32 values from `source` to `target`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        origin = builder.gep(_data(context, builder, signature, args, 0), [args[1]])
        goal = builder.gep(_data(context, builder, signature, args, 2), [args[3]])
        cgutils.raw_memcpy(builder, goal, origin, args[4], 4)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), codegen


@intrinsic
def pack_triangle(typingctx: Any, gram: Any, stride: Any, vectors: Any, out: Any, at: Any) -> Any:
    """Copy the strictly lower triangle of `gram` [vectors, stride], row by row, to `out` from `at` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, packed = (_data(context, builder, signature, args, k) for k in (0, 3))
        for position, (row, column) in _below_diagonal(builder, args[2], args[4]):
            value = builder.load(builder.gep(matrix, [builder.add(builder.mul(row, args[1]), column)]))
            builder.store(value, builder.gep(packed, [position]))
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(gram, i64, i64, out, i64), codegen


@intrinsic
def unpack_triangle(typingctx: Any, packed: Any, at: Any, vectors: Any, matrix: Any, stride: Any) -> Any:
    """Spread a packed strictly lower triangle over both triangles of `matrix` [vectors, stride]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, target = (_data(context, builder, signature, args, k) for k in (0, 3))
        for position, (row, column) in _below_diagonal(builder, args[2], args[1]):
            value = builder.load(builder.gep(source, [position]))
            for left, right in ((row, column), (column, row)):
                builder.store(value, builder.gep(target, [builder.add(builder.mul(left, args[4]), right)]))
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(packed, i64, i64, matrix, i64), codegen


@intrinsic
def block_dots(typingctx: Any, x: Any, left: Any, right: Any, stride: Any, out: Any, at: Any, out_stride: Any) -> Any:
    """``out[r, c] = x[left + r] · x[right + c]`` for 4 rows r and 2 columns c; `stride` is a multiple of WIDTH."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, target = (_data(context, builder, signature, args, k) for k in (0, 4))
        rows = [builder.add(args[1], builder.mul(args[3], _I64(r))) for r in range(4)]
        columns = [args[2], builder.add(args[2], args[3])]

        def body(position: Any, sums: list[Any]) -> list[Any]:
            lefts = [_load(builder, data, builder.add(row, position)) for row in rows]
            rights = [_load(builder, data, builder.add(column, position)) for column in columns]
            return [_fma(builder, lefts[k // 2], rights[k % 2], total) for k, total in enumerate(sums)]

        dots = _horizontal(builder, _accumulate(builder, args[3], WIDTH, 8, body))
        for r in range(4):
            pair = _shuffle(builder, dots, dots, [2 * r, 2 * r + 1])
            _store(builder, pair, target, builder.add(args[5], builder.mul(args[6], _I64(r))))
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(x, i64, i64, i64, out, i64, i64), codegen


@intrinsic
def block_products(
    typingctx: Any,
    pairs: Any,
    row: Any,
    pairs_stride: Any,
    x: Any,
    column: Any,
    stride: Any,
    count: Any,
    out: Any,
    at: Any,
) -> Any:
    """``out[r] = sum over j < count of pairs[r, j] * x[j]`` for 4 rows r and 2 registers of columns."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factors, data, target = (_data(context, builder, signature, args, k) for k in (0, 3, 7))
        rows = [builder.add(args[1], builder.mul(args[2], _I64(r))) for r in range(4)]

        def body(j: Any, sums: list[Any]) -> list[Any]:
            base = builder.add(args[4], builder.mul(j, args[5]))
            loaded = [_load(builder, data, builder.add(base, _I64(WIDTH * k))) for k in range(2)]
            scales = [_splat(builder, _load(builder, factors, builder.add(row, j), _F32)) for row in rows]
            return [_fma(builder, scales[k // 2], loaded[k % 2], total) for k, total in enumerate(sums)]

        for k, total in enumerate(_accumulate(builder, args[6], 1, 8, body)):
            at = builder.add(args[8], builder.mul(args[5], _I64(k // 2)))
            _store(builder, total, target, builder.add(at, _I64(WIDTH * (k % 2))))
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(pairs, i64, i64, x, i64, i64, i64, out, i64), codegen


def _splat(builder: Any, value: Any) -> Any:
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _I32(0))
    return _shuffle(builder, single, single, [0] * WIDTH)
