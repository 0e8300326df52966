"""Parts of the simulator; `allocator.core.simulate` is its entrance."""
