"""What a training's wall time goes into beside its steps."""
