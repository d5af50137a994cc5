"""One folder per op. `reference.py` is plain torch: the CPU path and the oracle of every other one.

Not to be confused with the Hugging Face package `kernels`: Stepscope's distribution has another
name, so that libraries that look for that package do not take this one for it.
"""
