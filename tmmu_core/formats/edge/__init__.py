"""TensorFlow Lite, ExecuTorch, Vela and TensorFlow Lite Micro."""
