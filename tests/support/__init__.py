"""What the tests share: backends under test, tolerances, inputs, oracles."""
