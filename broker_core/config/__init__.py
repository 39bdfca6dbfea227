"""The configuration: one TOML file, environment variables and flags, checked as a whole."""
