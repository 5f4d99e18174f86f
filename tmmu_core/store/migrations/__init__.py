"""How a store's tables came to be, revision by revision: read by Alembic, never edited once released."""
