"""The engine: scheduler, block pool, runner, models.  Pure cores; torch only in runner, model, parallel."""
