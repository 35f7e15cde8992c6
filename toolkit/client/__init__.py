"""Speaking to the service: requests go out through one door and come back as bytes or small values."""
