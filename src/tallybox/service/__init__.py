"""The HTTP service and its explorer page: FastAPI routes, batching, limits, and the server that runs them."""
