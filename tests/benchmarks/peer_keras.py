"""The same DeepFM in Keras 3, trained by model.fit, as an engineer would write it by hand; a side of peers.py.

    python peer_keras.py ROWS.npz OUT.json --batch 1024 --steps 300

Keras updates the whole embedding table at every step. Batches come from arrays in memory by tf.data.
"""

import argparse
import json
import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows")
    parser.add_argument("out")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=0, help="timed steps; 0 for one pass")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    keras.utils.set_random_seed(arguments.seed)
    with np.load(arguments.rows) as found:
        size = int(found["size"])
        ids, values, labels = (found[name] for name in ("ids", "values", "labels"))
        test = [found[f"test_{name}"] for name in ("ids", "values")]
    model = deepfm(size, ids.shape[1])
    optimizers = {"adam": keras.optimizers.Adam, "adagrad": keras.optimizers.Adagrad}
    model.compile(optimizers[arguments.optimizer](arguments.rate), keras.losses.BinaryCrossentropy(from_logits=True))
    batches = len(labels) // arguments.batch
    warmup = min(arguments.warmup, batches - 1)
    steps = arguments.steps or batches - warmup
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
