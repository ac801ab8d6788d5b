"""What the notebooks' exercises are checked with: one file a notebook; messages name the likely mistake."""
