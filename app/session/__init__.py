"""What one person has opened and chosen, and the work under way for it."""
