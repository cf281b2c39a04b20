"""A made-up world in the official formats: scenes, what a detector would say about them, questions, answers."""
