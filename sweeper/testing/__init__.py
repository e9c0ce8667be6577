"""Fakes shipped with the package, so that tests prefer them to patches."""
