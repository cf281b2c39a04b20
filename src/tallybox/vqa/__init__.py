"""VQA v2: from the official files to answers."""
