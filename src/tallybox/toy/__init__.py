"""The paper's toy task: every point of its figures, trained at once."""
