"""The official files, and what `tallybox vqa prepare` makes of them."""
