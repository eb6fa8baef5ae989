"""PostgreSQL: an embedded one for one machine, the pool, the migrations, the named queries."""
