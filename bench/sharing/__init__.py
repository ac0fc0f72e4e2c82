"""Parts of bench/run share."""
