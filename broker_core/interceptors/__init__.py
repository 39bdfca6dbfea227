"""Interceptors: code that sees each published message before it is routed, and may change or refuse it."""
