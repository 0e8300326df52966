"""The allocator's arithmetic: a problem in, a checked plan out. No Django, no database."""
