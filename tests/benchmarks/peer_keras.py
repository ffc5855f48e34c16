"""The same DeepFM in Keras 3, trained by model.fit, as an engineer would write it by hand; a side of peers.py.

    python peer_keras.py ROWS.npz OUT.json --batch 1024 --steps 300

Keras updates the whole embedding table at every step. Batches come from arrays in memory by tf.data.

Adam of Keras 3.15 gets the gradient of an embedding cell by cell, and adds up their squares where Adam squares the sum of an id's
cells: an id that stands in many rows of a batch has a smaller second moment, and moves further. --summed sums first.
"""

import json
import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from keras import layers, ops
from peer_options import lengths, peer_parser, read_rows

SIZE, LAYERS = 32, (128, 64, 32)


def deepfm(size: int, fields: int) -> Any:
    ids, values = keras.Input((fields,), dtype="int32"), keras.Input((fields,))
    near_zero = keras.initializers.RandomNormal(stddev=0.01)
    scale = layers.Reshape((fields, 1))(values)
    weights = layers.Multiply()([layers.Embedding(size, 1, embeddings_initializer=near_zero)(ids), scale])
    embeddings = layers.Multiply()([layers.Embedding(size, SIZE, embeddings_initializer=near_zero)(ids), scale])
    first = layers.Lambda(lambda x: ops.sum(x, axis=1), output_shape=(1,))(weights)

    def pairs(x: Any) -> Any:
        return 0.5 * ops.sum(ops.square(ops.sum(x, axis=1)) - ops.sum(ops.square(x), axis=1), axis=1, keepdims=True)

    second = layers.Lambda(pairs, output_shape=(1,))(embeddings)
    hidden = layers.Flatten()(embeddings)
    for width in LAYERS:
        hidden = layers.Dense(width, activation="relu")(hidden)
    return keras.Model([ids, values], layers.Add()([first, second, layers.Dense(1)(hidden)]))


class SummedAdam(keras.optimizers.Adam):
    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)


def main() -> None:
    parser = peer_parser()
    parser.add_argument("--summed", action="store_true", help="of Adam: square the sum of an id's gradients, not each")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    keras.utils.set_random_seed(arguments.seed)
    size, (ids, values, labels), test = read_rows(arguments.rows)
    model = deepfm(size, ids.shape[1])
    optimizers = {"adam": SummedAdam if arguments.summed else keras.optimizers.Adam, "adagrad": keras.optimizers.Adagrad}
    model.compile(optimizers[arguments.optimizer](arguments.rate), keras.losses.BinaryCrossentropy(from_logits=True))
    _, warmup, steps = lengths(arguments, len(labels))
    rows = tf.data.Dataset.from_tensor_slices(((ids, values), labels)).batch(arguments.batch, drop_remainder=True).repeat()
    model.fit(rows.take(warmup).prefetch(4), epochs=1, steps_per_epoch=warmup, verbose=0)
    begin = time.perf_counter()
    model.fit(rows.skip(warmup).prefetch(4), epochs=1, steps_per_epoch=steps, verbose=0)
    rate = steps * arguments.batch / (time.perf_counter() - begin)
    scores = model.predict(test, batch_size=4096, verbose=0).reshape(-1)
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"examples_per_s": rate, "scores": scores.tolist()}, file)


if __name__ == "__main__":
    main()
