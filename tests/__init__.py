import os

# Products in the kernel lab are NumPy's, and small: its threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
