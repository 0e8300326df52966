"""Pure arithmetic of plans and checkpoints: no Django, no clock, no database."""
