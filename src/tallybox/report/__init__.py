"""The static page of `tallybox explain` and `tallybox ask --page`: plain data in, one HTML file out."""
