"""Runs migrations on the connection that riglm gives, or on the store named by `alembic -x url=...`."""

from alembic import context
from sqlalchemy import Connection

from riglm.adapters.analytics.engine import make_engine, prepare, writing
from riglm.adapters.analytics.tables import VECTOR_TABLE, metadata


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=True,
        include_name=lambda name, kind, _parents: (kind, name) != ("table", VECTOR_TABLE),
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = context.get_x_argument(as_dictionary=True)["url"]
    engine = make_engine(url)
    prepare(engine, url)
    with writing(engine) as opened:
        run(opened)
    engine.dispose()
