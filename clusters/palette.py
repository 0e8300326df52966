"""How many programs have a hue of their own; static/allotment.css holds them."""

HUES = 12  # checked for colour-blind readers (docs/ui.md); programs beyond share ink-grey
