"""Generators that translate pictures, and discriminators that judge them."""
