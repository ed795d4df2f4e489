"""Lanner: train click-through-rate and ranking models on embedding tables of any size, and serve them."""
