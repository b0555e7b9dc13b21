"""All that is drawn with matplotlib, the only place that imports it."""
