"""What trains with Keras on TensorFlow; a test that imports it skips where Keras runs on another backend."""

from tests.numerics import lost_updates, oracle, planted, remedies, setups
from tests.record.on_tensorflow import keras, tf

__all__ = ["keras", "lost_updates", "oracle", "planted", "remedies", "setups", "tf"]
