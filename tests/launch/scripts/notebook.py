#!/usr/bin/env python
# coding: utf-8

# # A notebook, exported

# In[1]:


import keras
import numpy as np

keras.utils.set_random_seed(9)


# In[2]:


x = np.random.default_rng(9).random((320, 4), dtype="float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x[:, :1], batch_size=8, verbose=0)


# In[3]:


[w.tobytes().hex()[:32] for w in model.get_weights()]


# In[4]:


print(_ if "_" in globals() else "no such thing outside a notebook", model.evaluate(x, x[:, :1], verbose=0))
