"""Who computes what: workers, each owning a contiguous run of layers."""
