"""The one exception for mistakes that the user can mend."""


class InputError(ValueError):
    """Bad input. The message is one line that names the culprit and, where there is one, the remedy."""
