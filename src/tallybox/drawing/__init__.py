"""What the static report and the explorer page both draw with: countings as plain data, example scenes, and assets."""
