"""The forward kernel of `score_map`: a tile of queries walks along the keys that it sees."""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false

import triton
import triton.language as tl

from impls.kernels.score_launch import Tiles
from impls.kernels.score_maps import LOG2E, load, peak, store, weigh

TILES = Tiles(
    usual=((128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 8, 3), (64, 64, 4, 3)),
    wide=((32, 32, 4, 2), (64, 32, 4, 3), (64, 64, 8, 2)),
    single=((16, 64, 4, 3),),
)
DEAD = tl.constexpr(-19.931568569324174)  # log2(1e-6): the largest r of a row that is taken for a rounding error of 0
LOWEST = tl.constexpr(-1e30)  # a finite start of the running maximum: rows that see no key make no NaN


@triton.jit
def walk(
    acc, total, m, q, k_ptr, v_ptr, k_s, v_s, first, last, row, sees, S, c, bias,
    MAP: tl.constexpr, PEAKED: tl.constexpr, NORMED: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The keys first, …, last - 1, N at a time; row i sees those up to sees[i]."""
    for start in range(first, last, N):
        keys = start + tl.arange(0, N)
        k = load(k_ptr, keys, k_s, S, K, BLOCK_K, MASKED)
        x = tl.dot(q, tl.trans(k), input_precision=PRECISION) * c
        keep = keys[None, :] <= sees[:, None]
        if PEAKED:
            top = peak(x, row[:, None], sees[:, None], bias, MAP)
            if MAP == "reweight":
                x = top
            if MASKED:
                top = tl.where(keep, top, float("-inf"))
            higher = tl.maximum(m, tl.max(top, 1))
            shrink = tl.exp2(m - higher)
            m = higher
            total = total * shrink
            acc = acc * shrink[:, None]
        f, h = weigh(x, m[:, None], row[:, None], bias, MAP)
        if MASKED:
            f = tl.where(keep, f, 0.0)
            h = tl.where(keep, h, 0.0)
        if NORMED:
            total += tl.sum(h, 1)
        v = load(v_ptr, keys, v_s, S, V, BLOCK_V, MASKED)
        acc = tl.dot(f.to(v.dtype), v, acc, input_precision=PRECISION)
    return acc, total, m


@triton.jit
def finish(total, m, sees, bias, MAP: tl.constexpr, PEAKED: tl.constexpr, NORMED: tl.constexpr):
    """(what the sum of values is multiplied by, stat) once a row has met all its keys."""
    factor = total * 0.0 + 1.0
    if MAP == "softpick":
        total += bias
    if MAP == "reweight":
        total = tl.where(m > bias * DEAD, total, float("inf"))
    if NORMED:
        factor = 1 / tl.where(total > 0, total, 1.0)
    elif MAP == "relu_index":
        factor = 1 / tl.maximum(sees, 1).to(tl.float32)
    stat = factor
    if PEAKED:
        stat = m - tl.log2(factor)
    return factor, stat


@triton.jit(do_not_specialize=["T", "S", "bucket"])
def forward(
    q_ptr, k_ptr, v_ptr, row_ptr, y_ptr, stat_ptr,
    q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, row_b, row_h, row_t,
    T, S, bucket, B, c, bias,
    H: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr, MAP: tl.constexpr, PEAKED: tl.constexpr, NORMED: tl.constexpr, ROW: tl.constexpr,
    PRECISION: tl.constexpr, PARTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """y [B,T,H,V] and stat [B,H,T] of q [B,H,T,K], k [B,H/GROUP,S,K], v [B,H/GROUP,S,V]; strides in elements.

    The queries are the last T of the S positions. One program takes M queries of one head; those with the longest way
    start first. `row` [B,H,T] as in `score_maps`, if ROW. With PARTS above 1, further programs share the keys of the M
    queries, and y [PARTS,B,T,H,V] and stat [PARTS,2,B,H,T] hold what `merge` makes y and stat of.
    """
    blocks = tl.cdiv(T, M)
    pid = tl.program_id(0)
    block = blocks - 1 - pid % blocks
    b = (pid // blocks // H).to(tl.int64)
    h = (pid // blocks % H).to(tl.int64)
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + (h // GROUP) * k_h
    v_ptr += b * v_b + (h // GROUP) * v_h
    rows = block * M + tl.arange(0, M)
    sees = rows + (S - T)
    q = load(q_ptr, rows, q_t, T, K, BLOCK_K, True)

    acc = tl.zeros([M, BLOCK_V], tl.float32)
    total = tl.zeros([M], tl.float32)
    m = tl.zeros([M], tl.float32)
    row = tl.zeros([M], tl.float32)
    if ROW:
        at = row_ptr + b * row_b + h * row_h + rows.to(tl.int64) * row_t
        row += tl.load(at, mask=rows < T, other=0.0).to(tl.float32)
    if ROW and MAP == "softmax":
        own = tl.program_id(1) == 0
        m += tl.where(own, row * LOG2E, LOWEST)
        total += tl.where(own, 1.0, 0.0)
    elif PEAKED and MAP != "softpick":  # whose maximum is never below 0
        m += LOWEST
    per_part = tl.cdiv(tl.cdiv(S, N), PARTS) * N
    first = tl.program_id(1) * per_part
    end = tl.minimum(tl.minimum(block * M + M + S - T, S), first + per_part)
    below = tl.maximum(block * M + S - T + 1, 0)
    middle = tl.maximum(tl.minimum(below // N * N, first + per_part), first)  # every row sees all keys before
    acc, total, m = walk(
        acc, total, m, q, k_ptr, v_ptr, k_s, v_s, first, middle, row, sees, S, c, bias,
        MAP, PEAKED, NORMED, K, V, BLOCK_K, BLOCK_V, PRECISION, N, False,
    )  # fmt: skip
    acc, total, m = walk(
        acc, total, m, q, k_ptr, v_ptr, k_s, v_s, middle, end, row, sees, S, c, bias,
        MAP, PEAKED, NORMED, K, V, BLOCK_K, BLOCK_V, PRECISION, N, True,
    )  # fmt: skip

    if PARTS > 1:
        part = tl.program_id(1)
        store(y_ptr + (((part * B + b) * T) * H + h) * V, acc, rows, H * V, T, V, BLOCK_V)
        stat_ptr += 2 * part * B * H * T
        tl.store(stat_ptr + (b * H + h) * T + rows, m, mask=rows < T)
        tl.store(stat_ptr + (B * H + b * H + h) * T + rows, total, mask=rows < T)
    else:
        factor, stat = finish(total, m, sees, bias, MAP, PEAKED, NORMED)
        store(y_ptr + (b * T * H + h) * V, acc * factor[:, None], rows, H * V, T, V, BLOCK_V)
        tl.store(stat_ptr + (b * H + h) * T + rows, stat, mask=rows < T)


@triton.jit(do_not_specialize=["S", "heads"])
def merge(
    part_ptr, part_stat_ptr, y_ptr, stat_ptr, S, heads, bias, V: tl.constexpr, BLOCK_V: tl.constexpr,
    MAP: tl.constexpr, PEAKED: tl.constexpr, NORMED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """y [heads,V] and stat [heads] of single queries from their parts; one program a head of a row of the batch."""
    head = tl.program_id(0)
    parts = tl.arange(0, PARTS)
    columns = tl.arange(0, BLOCK_V)
    m = tl.load(part_stat_ptr + 2 * parts * heads + head)
    total = tl.load(part_stat_ptr + (2 * parts + 1) * heads + head)
    at = (parts * heads + head).to(tl.int64)[:, None] * V + columns[None, :]
    acc = tl.load(part_ptr + at, mask=(columns < V)[None, :], other=0.0)
    top = tl.max(m, 0)
    share = m * 0.0 + 1.0
    if PEAKED:
        share = tl.exp2(m - top)
    one = tl.zeros([1], tl.float32)
    sees = one.to(tl.int32) + S - 1
    factor, stat = finish(one + tl.sum(share * total, 0), one + top, sees, bias, MAP, PEAKED, NORMED)
    y = tl.sum(share[:, None] * acc, 0)[None, :] * factor[:, None]
    store(y_ptr, y, one.to(tl.int32) + head, V, heads, V, BLOCK_V)
    tl.store(stat_ptr + head + one.to(tl.int32), stat)
