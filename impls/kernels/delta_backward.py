"""The backward kernels of `delta_chunk`: the walk of the state's gradient back along the chunks, then each chunk.

With the letters of `delta_forward`, and dS the gradient of the state after the chunk:

    de = R^T dy + (D_C w) dS,   dv = du = X^T de        du = de without a delta rule
    dS_0 = (P q)^T dy + P_C dS - (P k)^T du
    dR = dy e^T,   dA = -du e^T,   d(P q) = dy S_0^T,   d(P k) = -du S_0^T,   d(D_C w) = e dS^T
    dg_t = sum over t' >= t of q dq + k dk - w dw at t', and S_C dS summed over V
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

from impls.kernels.delta_forward import SCALAR, VECTOR, faded, left, logs, meeting, products, put, tile, where_is


@triton.jit
def walk_back(
    q_ptr, k_ptr, w_ptr, g_ptr, inverse_ptr, dy_ptr, dfinal_ptr, dv_ptr, dstates_ptr, dinitial_ptr, cu_ptr, before_ptr,
    q_t, q_h, k_t, k_h, w_t, w_h, g_t, g_h, dy_t, dy_h,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    DECAY: tl.constexpr, DELTA: tl.constexpr, LEVELS: tl.constexpr, PRECISION: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """dv [R,H,V], dinitial [n,H,K,V] and dstates [N,H,K,V], the gradients of the states as chunks end."""
    pid = tl.program_id(0)
    blocks: tl.constexpr = (V + BLOCK_V - 1) // BLOCK_V
    n, h = (pid // blocks // H).to(tl.int64), (pid // blocks % H).to(tl.int64)
    begin, end = tl.load(cu_ptr + n), tl.load(cu_ptr + n + 1)
    across, columns, t = tl.arange(0, BLOCK_K), pid % blocks * BLOCK_V + tl.arange(0, BLOCK_V), tl.arange(0, C)
    count = tl.cdiv(end - begin, C)
    dS = tile(dfinal_ptr + (n * H + h) * K * V, across, columns, V, K, V)
    for back in range(count):
        chunk = (tl.load(before_ptr + n) + count - 1 - back).to(tl.int64)
        rows = begin + (count - 1 - back) * C + t
        put(dstates_ptr + (chunk * H + h) * K * V, dS, across, columns, V, K, V)
        q = tile(q_ptr + h * q_h, rows, across, q_t, end, K)
        w = tile(w_ptr + h * w_h, rows, across, w_t, end, K)
        g = logs(g_ptr + h * g_h, rows, across, g_t, end, K, DECAY)
        dy = tile(dy_ptr + h * dy_h, rows, columns, dy_t, end, V)
        P = tl.exp(tl.cumsum(g, 0))
        R = products(q, w, g, DECAY, LEVELS, C, PRECISION)
        stay = w * left(g_ptr + h * g_h, rows, across, g_t, end, K, DECAY)
        du = tl.dot(tl.trans(R), dy, input_precision=PRECISION) + tl.dot(stay, dS, input_precision=PRECISION)
        dS = dS * tl.trans(tl.exp(tl.sum(g, 0, keep_dims=True)))
        dS += tl.dot(tl.trans(q * P), dy, input_precision=PRECISION)
        if DELTA:
            k = tile(k_ptr + h * k_h, rows, across, k_t, end, K)
            X = tile(inverse_ptr + (chunk * H + h) * C * C, t, t, C, C, C)
            du = tl.dot(tl.trans(X), du, input_precision=PRECISION)
            dS -= tl.dot(tl.trans(k * P), du, input_precision=PRECISION)
        put(dv_ptr + h * V, du, rows, columns, H * V, end, V)
    put(dinitial_ptr + (n * H + h) * K * V, dS, across, columns, V, K, V)


@triton.jit
def factors(
    dM, a, b, g, DECAY: tl.constexpr, LEVELS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """(da, db) of `products`, given the gradient of what it returns."""
    t = tl.arange(0, C)
    if DECAY == VECTOR:
        same = tl.sum(tl.where(t[:, None] == t[None, :], dM, 0.0), 1)[:, None]
        da, db = same * b, same * a
        for level in tl.static_range(LEVELS):
            side, meets = meeting(level, g, C)
            part = tl.where(meets, dM, 0.0)
            da += side * tl.dot(part, b * side, input_precision=PRECISION)
            db += side * tl.dot(tl.trans(part), a * side, input_precision=PRECISION)
    else:
        part = tl.where(t[:, None] >= t[None, :], dM, 0.0)
        if DECAY == SCALAR:
            part = part * faded(g, C)
        da = tl.dot(part, b, input_precision=PRECISION)
        db = tl.dot(tl.trans(part), a, input_precision=PRECISION)
    return da, db


@triton.jit
def chunks(
    q_ptr, k_ptr, w_ptr, e_ptr, g_ptr, states_ptr, dy_ptr, dv_ptr, dstates_ptr,
    dq_ptr, dk_ptr, dw_ptr, dg_ptr, cu_ptr, before_ptr, of_ptr,
    q_t, q_h, k_t, k_h, w_t, w_h, e_t, e_h, g_t, g_h, dy_t, dy_h,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    DECAY: tl.constexpr, DELTA: tl.constexpr, LEVELS: tl.constexpr, PRECISION: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """dq, dk, dw [R,H,K] and dg [R,H,K], or [R,H,blocks] to be summed, of one chunk, head and block of channels."""
    pid = tl.program_id(0)
    blocks: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    block, chunk, h = pid % blocks, (pid // blocks // H).to(tl.int64), (pid // blocks % H).to(tl.int64)
    first, end = where_is(chunk, cu_ptr, before_ptr, of_ptr, C)
    t, across = tl.arange(0, C), block * BLOCK_K + tl.arange(0, BLOCK_K)
    rows = first + t
    q = tile(q_ptr + h * q_h, rows, across, q_t, end, K)
    w = tile(w_ptr + h * w_h, rows, across, w_t, end, K)
    g = logs(g_ptr + h * g_h, rows, across, g_t, end, K, DECAY)
    P, after = tl.exp(tl.cumsum(g, 0)), left(g_ptr + h * g_h, rows, across, g_t, end, K, DECAY)
    whole = tl.trans(tl.exp(tl.sum(g, 0, keep_dims=True)))
    dR, dA = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32)
    dPq, dPk = tl.zeros([C, BLOCK_K], tl.float32), tl.zeros([C, BLOCK_K], tl.float32)
    dstay, ends = tl.zeros([C, BLOCK_K], tl.float32), tl.zeros([BLOCK_K], tl.float32)
    at = (chunk * H + h) * K * V
    for start in range(0, V, BLOCK_V):
        columns = start + tl.arange(0, BLOCK_V)
        S = tile(states_ptr + at, across, columns, V, K, V)
        dS = tile(dstates_ptr + at, across, columns, V, K, V)
        e = tile(e_ptr + h * e_h, rows, columns, e_t, end, V)
        dy = tile(dy_ptr + h * dy_h, rows, columns, dy_t, end, V)
        if DELTA:
            du = tile(dv_ptr + h * V, rows, columns, H * V, end, V)
            dA -= tl.dot(du, tl.trans(e), input_precision=PRECISION)
            dPk -= tl.dot(du, tl.trans(S), input_precision=PRECISION)
        dR += tl.dot(dy, tl.trans(e), input_precision=PRECISION)
        dPq += tl.dot(dy, tl.trans(S), input_precision=PRECISION)
        dstay += tl.dot(e, tl.trans(dS), input_precision=PRECISION)
        S = S * whole + tl.dot(tl.trans(w * after), e, input_precision=PRECISION)
        ends += tl.sum(S * dS, 1)
    dq, dw = factors(dR, q, w, g, DECAY, LEVELS, C, PRECISION)
    dq, dw = dq + P * dPq, dw + after * dstay
    dG = q * dq
    if DELTA:
        k = tile(k_ptr + h * k_h, rows, across, k_t, end, K)
        dA = tl.where(t[:, None] > t[None, :], dA, 0.0)
        dk, more = factors(dA, k, w, g, DECAY, LEVELS, C, PRECISION)
        dk, dw = dk + P * dPk, dw + more
        dG += k * dk
        put(dk_ptr + h * K, dk, rows, across, H * K, end, K)
    dG -= w * dw
    put(dq_ptr + h * K, dq, rows, across, H * K, end, K)
    put(dw_ptr + h * K, dw, rows, across, H * K, end, K)
    if DECAY == VECTOR:
        dg = tl.cumsum(dG, 0, reverse=True) + ends[None, :]
        put(dg_ptr + h * K, dg, rows, across, H * K, end, K)
    if DECAY == SCALAR:
        dg = tl.cumsum(tl.sum(dG, 1), 0, reverse=True) + tl.sum(ends, 0)
        tl.store(dg_ptr + (rows.to(tl.int64) * H + h) * blocks + block, dg, mask=rows < end)
