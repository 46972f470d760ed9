"""Views for people: text, models of what a screen shows, and the screens themselves."""
