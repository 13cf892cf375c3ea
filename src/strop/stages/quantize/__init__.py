"""Give weights and activations fewer bits. Every option says how much it really quantized."""
