"""Pictures. The only package that imports matplotlib."""
