"""What runs inside a training container: one DeepFM, several ways to distribute it."""
