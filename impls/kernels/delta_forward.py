"""The forward kernels of `delta_chunk`: the inverses of the chunks, and the walk of the state along them.

One chunk, from the state S_0 before it, with P_t = exp(g_1 + ... + g_t), D_ts = exp(g_{s+1} + ... + g_t):

    e   = v                                            without a delta rule, else
    e   = X (v - (P k) S_0),   X = (1 + A)^-1          A_ts = (k_t . D_ts w_s), s < t
    y   = R e + (P q) S_0                              R_ts = (q_t . D_ts w_s), s <= t
    S_C = P_C S_0 + (D_C w)^T e
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

NONE, SCALAR, VECTOR = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # what DECAY says


@triton.jit
def tile(ptr, rows, columns, step, end, WIDTH: tl.constexpr):
    """Rows of a matrix whose columns are adjacent, in float32; 0 from row `end` and column WIDTH on."""
    mask = (rows < end)[:, None] & (columns < WIDTH)[None, :]
    return tl.load(ptr + rows.to(tl.int64)[:, None] * step + columns[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def put(ptr, x, rows, columns, step, end, WIDTH: tl.constexpr):
    """Write such rows."""
    mask = (rows < end)[:, None] & (columns < WIDTH)[None, :]
    to = ptr + rows.to(tl.int64)[:, None] * step + columns[None, :]
    tl.store(to, x.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def logs(ptr, rows, columns, step, end, K: tl.constexpr, DECAY: tl.constexpr):
    """g as [C,1] or [C,K], 0 from row `end` on."""
    if DECAY == VECTOR:
        g = tile(ptr, rows, columns, step, end, K)
    elif DECAY == SCALAR:
        g = tl.load(ptr + rows.to(tl.int64) * step, mask=rows < end, other=0.0).to(tl.float32)[:, None]
    else:
        g = (rows * 0.0)[:, None]
    return g


@triton.jit
def left(ptr, rows, columns, step, end, K: tl.constexpr, DECAY: tl.constexpr):
    """exp(g_{t+1} + ... + g_C) as [C,1] or [C,K]: `rows` end with the chunk. Sums of terms <= 0, never differences."""
    stop = tl.minimum(end, tl.max(rows, 0) + 1)
    return tl.exp(tl.cumsum(logs(ptr, rows + 1, columns, step, stop, K, DECAY), 0, reverse=True))


@triton.jit
def meeting(level: tl.constexpr, g, C: tl.constexpr):
    """(what brings either side to the middle of its block [C,K], where pairs meet [C,C]), of `decays.by_halves`."""
    t = tl.arange(0, C)
    half: tl.constexpr = 2**level
    middle = t // (2 * half) * (2 * half) + half - 1
    low, high = tl.minimum(t, middle), tl.maximum(t, middle)
    between = (t[None, :] > low[:, None]) & (t[None, :] <= high[:, None])
    late = t > middle
    meets = (middle[:, None] == middle[None, :]) & late[:, None] & (t <= middle)[None, :]
    return tl.exp(tl.dot(between.to(tl.float32), g, input_precision="ieee")), meets


@triton.jit
def faded(g, C: tl.constexpr):
    """D_ts of one decay a step [C,1], 0 for s > t; every exponent a sum of terms <= 0."""
    t = tl.arange(0, C)
    sums = tl.cumsum(tl.where(t[:, None] > t[None, :], g, 0.0), 0)
    return tl.where(t[:, None] >= t[None, :], tl.exp(sums), 0.0)


@triton.jit
def products(
    a, b, g, DECAY: tl.constexpr, LEVELS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """a_t . D_ts b_s for s <= t, else 0."""
    t = tl.arange(0, C)
    if DECAY == VECTOR:
        found = tl.where(t[:, None] == t[None, :], tl.sum(a * b, 1)[:, None], 0.0)
        for level in tl.static_range(LEVELS):
            side, meets = meeting(level, g, C)
            found += tl.where(meets, tl.dot(a * side, tl.trans(b * side), input_precision=PRECISION), 0.0)
    elif DECAY == SCALAR:
        found = tl.dot(a, tl.trans(b), input_precision=PRECISION) * faded(g, C)
    else:
        found = tl.dot(a, tl.trans(b), input_precision=PRECISION)
        found = tl.where(t[:, None] >= t[None, :], found, 0.0)
    return found


@triton.jit
def where_is(chunk, cu_ptr, before_ptr, of_ptr, C: tl.constexpr):
    """(first row, row where its sequence ends) of a chunk."""
    n = tl.load(of_ptr + chunk)
    return tl.load(cu_ptr + n) + (chunk - tl.load(before_ptr + n)) * C, tl.load(cu_ptr + n + 1)


@triton.jit
def inverses(
    k_ptr, w_ptr, g_ptr, inverse_ptr, cu_ptr, before_ptr, of_ptr,
    k_t, k_h, w_t, w_h, g_t, g_h,
    H: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, DECAY: tl.constexpr, LEVELS: tl.constexpr,
    PRECISION: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """X [N,H,C,C] of one chunk and head, row after row by substitution."""
    pid = tl.program_id(0)
    chunk, h = (pid // H).to(tl.int64), (pid % H).to(tl.int64)
    first, end = where_is(chunk, cu_ptr, before_ptr, of_ptr, C)
    t, columns = tl.arange(0, C), tl.arange(0, BLOCK_K)
    rows = first + t
    k = tile(k_ptr + h * k_h, rows, columns, k_t, end, K)
    w = tile(w_ptr + h * w_h, rows, columns, w_t, end, K)
    g = logs(g_ptr + h * g_h, rows, columns, g_t, end, K, DECAY)
    A = tl.where(t[:, None] > t[None, :], products(k, w, g, DECAY, LEVELS, C, PRECISION), 0.0)
    X = (t[:, None] == t[None, :]).to(tl.float32)
    for i in range(1, C):
        line = tl.sum(tl.where(t[:, None] == i, A, 0.0), 0)
        X = tl.where(t[:, None] == i, X - tl.sum(line[:, None] * X, 0)[None, :], X)
    put(inverse_ptr + (chunk * H + h) * C * C, X, t, t, C, C, C)


@triton.jit
def forward(
    q_ptr, k_ptr, w_ptr, v_ptr, g_ptr, inverse_ptr, initial_ptr, y_ptr, e_ptr, states_ptr, final_ptr, cu_ptr,
    before_ptr,
    q_t, q_h, k_t, k_h, w_t, w_h, v_t, v_h, g_t, g_h,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    DECAY: tl.constexpr, DELTA: tl.constexpr, INITIAL: tl.constexpr, KEEP: tl.constexpr, LEVELS: tl.constexpr,
    PRECISION: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """y [R,H,V] and final [n,H,K,V] of one sequence, head and block of values; if KEEP, states [N,H,K,V] as chunks
    begin and, for a delta rule, e [R,H,V]."""
    pid = tl.program_id(0)
    blocks: tl.constexpr = (V + BLOCK_V - 1) // BLOCK_V
    n, h = (pid // blocks // H).to(tl.int64), (pid // blocks % H).to(tl.int64)
    begin, end = tl.load(cu_ptr + n), tl.load(cu_ptr + n + 1)
    chunk = tl.load(before_ptr + n).to(tl.int64)
    across, columns, t = tl.arange(0, BLOCK_K), pid % blocks * BLOCK_V + tl.arange(0, BLOCK_V), tl.arange(0, C)
    S = tl.zeros([BLOCK_K, BLOCK_V], tl.float32)
    if INITIAL:
        S += tile(initial_ptr + (n * H + h) * K * V, across, columns, V, K, V)
    for first in range(begin, end, C):
        rows = first + t
        if KEEP:
            put(states_ptr + (chunk * H + h) * K * V, S, across, columns, V, K, V)
        q = tile(q_ptr + h * q_h, rows, across, q_t, end, K)
        w = tile(w_ptr + h * w_h, rows, across, w_t, end, K)
        e = tile(v_ptr + h * v_h, rows, columns, v_t, end, V)
        g = logs(g_ptr + h * g_h, rows, across, g_t, end, K, DECAY)
        P = tl.exp(tl.cumsum(g, 0))
        if DELTA:
            k = tile(k_ptr + h * k_h, rows, across, k_t, end, K)
            X = tile(inverse_ptr + (chunk * H + h) * C * C, t, t, C, C, C)
            e -= tl.dot(k * P, S, input_precision=PRECISION)
            e = tl.dot(X, e, input_precision=PRECISION)
            if KEEP:
                put(e_ptr + h * V, e, rows, columns, H * V, end, V)
        R = products(q, w, g, DECAY, LEVELS, C, PRECISION)
        y = tl.dot(R, e, input_precision=PRECISION) + tl.dot(q * P, S, input_precision=PRECISION)
        put(y_ptr + h * V, y, rows, columns, H * V, end, V)
        stay = w * left(g_ptr + h * g_h, rows, across, g_t, end, K, DECAY)
        S = S * tl.trans(tl.exp(tl.sum(g, 0, keep_dims=True))) + tl.dot(tl.trans(stay), e, input_precision=PRECISION)
        chunk += 1
    put(final_ptr + (n * H + h) * K * V, S, across, columns, V, K, V)
