"""Where users find help."""

__all__ = ["HELP_URL"]

HELP_URL = "https://pypi.org/project/pyterrier-mart/"
