"""The client for JavaScript and TypeScript, and what generates its routes."""
