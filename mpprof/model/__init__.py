"""The nouns: plain frozen data that every room shares. Imports numpy and the standard library only."""
