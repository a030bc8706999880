"""What the layers of the score family have in common, written out."""

from tests.equations import heads, rotated


def projected(mixer, x_TD):
    """q, k, v of one row, [1,H,T,K] each."""
    q, k, v = (heads(z, mixer.heads) for z in mixer.qkv(x_TD).chunk(3, dim=-1))
    return (rotated(q), rotated(k), v) if mixer.rope else (q, k, v)
