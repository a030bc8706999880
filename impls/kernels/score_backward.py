"""The backward kernels of `score_map`: `queries` walks as the forward kernel does, `keys` the other way."""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false

import triton
import triton.language as tl

from impls.kernels.score_launch import Tiles
from impls.kernels.score_maps import LOG2E, load, slope, store

QUERIES = Tiles(usual=((128, 64, 8, 3), (128, 32, 4, 3), (64, 64, 4, 2)), wide=((32, 32, 4, 2), (64, 32, 4, 2)))
KEYS = Tiles(usual=((64, 128, 8, 2), (32, 128, 4, 3), (64, 64, 4, 2)), wide=((32, 32, 4, 2), (32, 64, 4, 2)))


@triton.jit
def walk_keys(
    dq, drow, q, dy, stat, delta, k_ptr, v_ptr, k_s, v_s, first, last, row, sees, S, c, bias,
    MAP: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    PRECISION: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    for start in range(first, last, N):
        keys = start + tl.arange(0, N)
        k = load(k_ptr, keys, k_s, S, K, BLOCK_K, MASKED)
        v = load(v_ptr, keys, v_s, S, V, BLOCK_V, MASKED)
        x = tl.dot(q, tl.trans(k), input_precision=PRECISION) * c
        dp = tl.dot(dy, tl.trans(v), input_precision=PRECISION)
        _, ds, dr = slope(x, dp, stat[:, None], delta[:, None], row[:, None], sees[:, None], bias, MAP)
        if MASKED:
            keep = keys[None, :] <= sees[:, None]
            ds = tl.where(keep, ds, 0.0)
            dr = tl.where(keep, dr, 0.0)
        if MAP == "adjust" or MAP == "reweight":
            drow += tl.sum(dr, 1)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq, drow


@triton.jit(do_not_specialize=["T", "S", "bucket"])
def queries(
    q_ptr, k_ptr, v_ptr, row_ptr, y_ptr, dy_ptr, stat_ptr, dstat_ptr, delta_ptr, dq_ptr, drow_ptr,
    q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, dy_b, dy_h, dy_t, row_b, row_h, row_t,
    T, S, bucket, c, bias, scale,
    H: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr, MAP: tl.constexpr, NORMED: tl.constexpr, ROW: tl.constexpr, DSTAT: tl.constexpr,
    PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """dq [B,T,H,K], drow [B,H,T] and, for `keys`, delta [B,H,T] = dy . y.

    `dstat`, the gradient of `stat`, enters through delta: it too is a number of the row that all its scores share.
    """
    blocks = tl.cdiv(T, M)
    pid = tl.program_id(0)
    block = blocks - 1 - pid % blocks
    b = (pid // blocks // H).to(tl.int64)
    h = (pid // blocks % H).to(tl.int64)
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + (h // GROUP) * k_h
    v_ptr += b * v_b + (h // GROUP) * v_h
    dy_ptr += b * dy_b + h * dy_h
    row_at = (b * H + h) * T
    rows = block * M + tl.arange(0, M)
    sees = rows + (S - T)
    q = load(q_ptr, rows, q_t, T, K, BLOCK_K, True)
    dy = load(dy_ptr, rows, dy_t, T, V, BLOCK_V, True)
    stat = tl.load(stat_ptr + row_at + rows, mask=rows < T, other=0.0)
    delta = tl.zeros([M], tl.float32)
    if NORMED:
        y = load(y_ptr + (b * T * H + h) * V, rows, H * V, T, V, BLOCK_V, True)
        delta += tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
        if DSTAT:
            dstat = tl.load(dstat_ptr + row_at + rows, mask=rows < T, other=0.0)
            delta += dstat * stat if MAP == "softplus" else -dstat * LOG2E
        tl.store(delta_ptr + row_at + rows, delta, mask=rows < T)

    row = tl.zeros([M], tl.float32)
    if ROW:
        at = row_ptr + b * row_b + h * row_h + rows.to(tl.int64) * row_t
        row += tl.load(at, mask=rows < T, other=0.0).to(tl.float32)
    dq = tl.zeros([M, BLOCK_K], tl.float32)
    drow = tl.zeros([M], tl.float32)
    below = tl.maximum(block * M + S - T + 1, 0)
    middle = below // N * N
    end = tl.minimum(block * M + M + S - T, S)
    dq, drow = walk_keys(
        dq, drow, q, dy, stat, delta, k_ptr, v_ptr, k_s, v_s, 0, middle, row, sees, S, c, bias,
        MAP, K, V, BLOCK_K, BLOCK_V, PRECISION, N, False,
    )  # fmt: skip
    dq, drow = walk_keys(
        dq, drow, q, dy, stat, delta, k_ptr, v_ptr, k_s, v_s, middle, end, row, sees, S, c, bias,
        MAP, K, V, BLOCK_K, BLOCK_V, PRECISION, N, True,
    )  # fmt: skip
    if ROW:
        if MAP == "softmax":
            drow -= delta * tl.exp2(row * LOG2E - stat)
        tl.store(drow_ptr + row_at + rows, drow, mask=rows < T)
    store(dq_ptr + (b * T * H + h) * K, dq * scale, rows, H * K, T, K, BLOCK_K)


@triton.jit
def walk_queries(
    dk, dv, k, v, q_ptr, dy_ptr, row_ptr, stat_ptr, delta_ptr, q_t, dy_t, row_t, first, last, seen, T, S, c, bias,
    MAP: tl.constexpr, NORMED: tl.constexpr, ROW: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr, PRECISION: tl.constexpr, M: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The queries first, …, last - 1, M at a time, transposed; rows beyond T are zeros and add nothing."""
    for start in range(first, last, M):
        rows = start + tl.arange(0, M)
        q = load(q_ptr, rows, q_t, T, K, BLOCK_K, True)
        dy = load(dy_ptr, rows, dy_t, T, V, BLOCK_V, True)
        stat = tl.load(stat_ptr + rows, mask=rows < T, other=0.0)
        delta = stat
        if NORMED:
            delta = tl.load(delta_ptr + rows, mask=rows < T, other=0.0)
        row = tl.zeros([M], tl.float32)
        if ROW:
            row += tl.load(row_ptr + rows.to(tl.int64) * row_t, mask=rows < T, other=0.0).to(tl.float32)
        sees = rows + (S - T)
        x = tl.dot(k, tl.trans(q), input_precision=PRECISION) * c
        dp = tl.dot(v, tl.trans(dy), input_precision=PRECISION)
        p, ds, _ = slope(x, dp, stat[None, :], delta[None, :], row[None, :], sees[None, :], bias, MAP)
        if MASKED:
            keep = rows[None, :] >= seen[:, None]
            p = tl.where(keep, p, 0.0)
            ds = tl.where(keep, ds, 0.0)
        dv = tl.dot(p.to(dy.dtype), dy, dv, input_precision=PRECISION)
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["T", "S", "bucket"])
def keys(
    q_ptr, k_ptr, v_ptr, row_ptr, dy_ptr, stat_ptr, delta_ptr, dk_ptr, dv_ptr,
    q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, dy_b, dy_h, dy_t, row_b, row_h, row_t,
    T, S, bucket, c, bias, scale,
    H: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr, MAP: tl.constexpr, NORMED: tl.constexpr, ROW: tl.constexpr,
    PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """dk [B,S,H/GROUP,K] and dv [B,S,H/GROUP,V]: one program takes N keys and, in turn, the GROUP heads they serve."""
    blocks = tl.cdiv(S, N)
    SHARED: tl.constexpr = H // GROUP
    pid = tl.program_id(0)
    first_key = pid % blocks * N
    b = (pid // blocks // SHARED).to(tl.int64)
    h = (pid // blocks % SHARED).to(tl.int64)
    cols = first_key + tl.arange(0, N)
    seen = cols - (S - T)  # the first row that sees each key
    k = load(k_ptr + b * k_b + h * k_h, cols, k_s, S, K, BLOCK_K, True)
    v = load(v_ptr + b * v_b + h * v_h, cols, v_s, S, V, BLOCK_V, True)
    dk = tl.zeros([N, BLOCK_K], tl.float32)
    dv = tl.zeros([N, BLOCK_V], tl.float32)
    first = tl.maximum(first_key - (S - T), 0) // M * M
    middle = tl.minimum(tl.cdiv(tl.maximum(first_key + N - 1 - (S - T), 0), M) * M, tl.cdiv(T, M) * M)
    for member in range(GROUP):
        head = h * GROUP + member
        qs = q_ptr + b * q_b + head * q_h
        dys = dy_ptr + b * dy_b + head * dy_h
        rowp = row_ptr + b * row_b + head * row_h
        at = (b * H + head) * T
        dk, dv = walk_queries(
            dk, dv, k, v, qs, dys, rowp, stat_ptr + at, delta_ptr + at, q_t, dy_t, row_t,
            first, middle, seen, T, S, c, bias, MAP, NORMED, ROW, K, V, BLOCK_K, BLOCK_V, PRECISION, M, True,
        )  # fmt: skip
        dk, dv = walk_queries(
            dk, dv, k, v, qs, dys, rowp, stat_ptr + at, delta_ptr + at, q_t, dy_t, row_t,
            middle, T, seen, T, S, c, bias, MAP, NORMED, ROW, K, V, BLOCK_K, BLOCK_V, PRECISION, M, False,
        )  # fmt: skip
    store(dk_ptr + (b * S * SHARED + h) * K, dk * scale, cols, SHARED * K, S, K, BLOCK_K)
    store(dv_ptr + (b * S * SHARED + h) * V, dv, cols, SHARED * V, S, V, BLOCK_V)
