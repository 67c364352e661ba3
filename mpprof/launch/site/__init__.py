"""A directory that stands first on the path of a launched script while its interpreter starts."""
