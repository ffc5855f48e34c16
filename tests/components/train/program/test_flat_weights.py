"""Dense weights that are cut into pieces come back whole, and every part gets its equal share of each vector."""

import numpy as np
import tensorflow as tf

from components.train.program.flat_weights import FlatWeights


def test_weights_that_are_updated_alike_share_a_vector_and_come_back_in_their_shapes() -> None:
    flat = FlatWeights([(1,), (2, 3), (2,)], ["plain", "decayed", "plain"], 2)
    values = [np.float32([9]), np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([7, 8])]
    assert flat.members == [[0, 2], [1]]
    # Three plain numbers in two pieces: 1 and 2. Six decayed ones: 3 and 3.
    assert [flat.sizes(part) for part in (0, 1)] == [[1, 3], [2, 3]]
    plain, decayed = flat.cut([values[0], values[2]], 0), flat.cut([values[1]], 1)
    assert [piece.tolist() for piece in plain + decayed] == [[9], [7, 8], [1, 2, 3], [4, 5, 6]]
    for found, expected in zip([*flat.whole(plain, 0), *flat.whole(decayed, 1)], [values[0], values[2], values[1]], strict=True):
        np.testing.assert_array_equal(found, expected)

    vector = flat.flatten([tf.constant(value) for value in values])
    assert vector.numpy().tolist() == [9, 7, 8, 1, 2, 3, 4, 5, 6]
    pieces = flat.split(vector)
    assert [[piece.numpy().tolist() for piece in part] for part in pieces] == [[[9], [1, 2, 3]], [[7, 8], [4, 5, 6]]]
    for found, expected in zip(flat.join(pieces), values, strict=True):
        np.testing.assert_array_equal(found, expected)
