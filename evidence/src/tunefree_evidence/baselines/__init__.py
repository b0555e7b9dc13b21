"""Recent methods that are measured against PolarFL; `tunefree` knows them by name."""
