"""What is asked of every mechanism, whatever its equations: one idea a file, put together by `harness.prove`.

contract    promises of the layer: causality, decoding, gradients, precision, state
operator    `attend` against its equations, stored vectors and its own second form
configs     settings that are closed and alive
identities  what follows from the equations, as the tests state it
exempt      properties that a mechanism need not have, each with its reason
"""
