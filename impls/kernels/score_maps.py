"""The maps of `score_map`, one element at a time: how a score becomes a weight, and its slope.

Scores arrive as x = c q . k; c holds the scale and, but for relu, log2(e), because exp2 is what the hardware has:
e^s = 2^x. `stat` is one number a row that the forward pass leaves for the backward pass:

    softmax, cog, adjust     log2 of the sum of 2^x, 2^|x| or 2^x
    softpick                 log2 of the sum of |2^x - 1|, eps included
    reweight                 log2 of the sum of r^p, infinite in a row of zeros
    softplus, relu           what a weight is multiplied by: 1 / the sum, 1 / the normaliser
    sigmoid                  not used

`row` is one number a row that a map may be given, and has a gradient: the logit of a key without value (softmax), what
is taken from s (adjust), what softplus is multiplied by (reweight). `bias` is one number for all: sigmoid's, softpick's
eps, reweight's power. `sees` is the last key that a row sees.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def softplus(x):
    """log2(1 + 2^x), to a few units of the last place also where 2^x is tiny."""
    t = tl.exp2(-tl.abs(x))
    series = t * (1 - t * (1 / 2 - t * (1 / 3 - t * (1 / 4 - t * (1 / 5 - t / 6))))) * LOG2E
    return tl.maximum(x, 0.0) + tl.where(t < 0.03125, series, tl.log2(1 + t))


@triton.jit
def logistic(x):
    """1 / (1 + 2^-x); 2^-x may be infinite."""
    return 1 / (1 + tl.exp2(-x))


@triton.jit
def excess(soft, row, sees):
    """LSSAR's r = relu(N A - O) from soft = log2(1 + 2^x) and row = N / its sum; O is 0 in the first three rows."""
    return tl.maximum(row * soft - tl.where(sees > 2, 1.0, 0.0), 0.0)


@triton.jit
def peak(x, row, sees, bias, MAP: tl.constexpr):
    """What the running maximum follows, and `weigh` takes in place of x."""
    if MAP == "reweight":
        x = tl.log2(excess(softplus(x), row, sees)) * bias
    elif MAP == "cog":
        x = tl.abs(x)
    return x


@triton.jit
def weigh(x, m, row, bias, MAP: tl.constexpr):
    """(f, h): what multiplies the value and what joins the row's sum; both times 2^-m where there is a maximum."""
    if MAP == "sigmoid":
        f = logistic(x + bias)
        h = f
    elif MAP == "relu" or MAP == "relu_index":
        f = tl.maximum(x, 0.0)
        h = f
    elif MAP == "softplus":
        f = softplus(x)
        h = f
    elif MAP == "softpick":
        a = tl.exp2(x - m) - tl.exp2(-m)
        f = tl.maximum(a, 0.0)
        h = tl.abs(a)
    elif MAP == "cog":
        h = tl.exp2(tl.abs(x) - m)
        f = tl.where(x > 0, h, tl.where(x < 0, -h, 0.0))
    elif MAP == "adjust":
        h = tl.exp2(x - m)
        f = (x * LN2 - row) * h
    else:
        f = tl.exp2(x - m)
        h = f
    return f, h


@triton.jit
def slope(x, dp, stat, delta, row, sees, bias, MAP: tl.constexpr):
    """(weight A, dL/ds, this element's part of dL/drow) from dp = dL/dA and delta = the row's sum of A dp."""
    dr = dp
    if MAP == "sigmoid":
        p = logistic(x + bias)
        ds = p * (1 - p) * dp
    elif MAP == "relu" or MAP == "relu_index":
        p = tl.maximum(x, 0.0) * stat
        ds = tl.where(x > 0, dp * stat, 0.0)
    elif MAP == "softplus":
        p = softplus(x) * stat
        ds = logistic(x) * (dp - delta) * (stat * LOG2E)
    elif MAP == "softpick":
        e = tl.exp2(x - stat)
        p = tl.maximum(e - tl.exp2(-stat), 0.0)
        ds = e * tl.where(x > 0, dp - delta, delta)
    elif MAP == "cog":
        e = tl.exp2(tl.abs(x) - stat)
        p = tl.where(x > 0, e, tl.where(x < 0, -e, 0.0))
        ds = tl.where(x > 0, e * (dp - delta), tl.where(x < 0, e * (dp + delta), 0.0))
    elif MAP == "adjust":
        e = tl.exp2(x - stat)
        p = (x * LN2 - row) * e
        ds = e * dp + p * dp - e * delta
        dr = -e * dp
    elif MAP == "reweight":
        soft = softplus(x)
        r = excess(soft, row, sees)
        p = tl.exp2(tl.log2(r) * bias - stat)
        dr = tl.where(r > 0, bias * p / r * (dp - delta), 0.0)
        ds = dr * row * logistic(x) * LOG2E
        dr = dr * soft
    else:
        p = tl.exp2(x - stat)
        ds = p * (dp - delta)
    return p, ds, dr


@triton.jit
def load(ptr, rows, stride, limit, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BOUNDED: tl.constexpr):
    """The tile [rows, BLOCK] of a matrix; zeros beyond its WIDTH columns and, if BOUNDED, its `limit` rows."""
    columns = tl.arange(0, BLOCK)
    at = ptr + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    if BOUNDED:
        return tl.load(at, mask=(rows < limit)[:, None] & (columns < WIDTH)[None, :], other=0.0)
    elif WIDTH != BLOCK:
        return tl.load(at, mask=(columns < WIDTH)[None, :], other=0.0)
    else:
        return tl.load(at)


@triton.jit
def store(ptr, tile, rows, stride, limit, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The tile's rows below `limit` and columns below WIDTH, in the matrix's own dtype."""
    columns = tl.arange(0, BLOCK)
    at = ptr + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    tl.store(at, tile.to(ptr.dtype.element_ty), mask=(rows < limit)[:, None] & (columns < WIDTH)[None, :])
