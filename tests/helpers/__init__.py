"""What tests in several folders share and is no fixture."""
