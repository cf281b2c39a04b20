"""The static page of `tallybox explain` and `tallybox ask --explain`: plain data in, one HTML file out."""
