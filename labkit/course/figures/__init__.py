"""Figures and widgets that only the lessons need."""
