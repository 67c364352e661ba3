"""The data types that every folder shares: plain and frozen. Imports numpy and the standard library only."""
