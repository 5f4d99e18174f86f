"""A file per question a person has. The pages themselves are scripts run by the router; what they share is in ``frame``."""
