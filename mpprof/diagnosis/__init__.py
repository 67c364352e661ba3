"""The judgement: from what is known of a run to findings, what is clear, and what cannot be told."""
