"""strop: which optimized form of a model to ship on given hardware, with numbers one can defend."""

__version__ = "0.1.0"
