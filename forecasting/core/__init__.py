"""Pure arithmetic of forecasts: no Django, no clock, no database."""
