"""The client, a module for each part of it."""
