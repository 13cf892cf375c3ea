"""Take weights out of the torch model, as zeros or for good, and train what is left. Every option says what it took."""
