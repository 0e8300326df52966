"""A recorded trace of jobs, played through the real cycle on a virtual clock."""
