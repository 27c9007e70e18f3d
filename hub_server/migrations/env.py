"""Runs the migrations on the connection that `Database.migrate` hands over."""

from __future__ import annotations

from alembic import context

import hub_server.accounts.tables
import hub_server.attestations.tables
import hub_server.checks.tables
import hub_server.evaluations.tables
import hub_server.expected_blobs
import hub_server.registry.tables
import hub_server.sandboxes.tables
import hub_server.secrets.tables
import hub_server.traces.tables  # noqa: F401  they fill the metadata
from hub_server.database import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite cannot alter a column in place
)
context.run_migrations()
