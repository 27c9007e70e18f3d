"""Tables of the registry."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Date,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    text,
)  # fmt: skip
from sqlalchemy.orm import Mapped, mapped_column, relationship

from hub_server.accounts.tables import Owner
from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id
from prime_cli.hub.models import ProjectStatus


class Environment(Base):
    """A name under an owner. A deleted one keeps its row, so that its file names are never given again."""

    __tablename__ = "environments"
    __table_args__ = (
        UniqueConstraint("owner_id", "normalized_name", name="uq_environments_owner_name"),
        # All that a list looks at, so that counting thousands reads none of their rows.
        Index(
            "ix_environments_seen",
            "visibility",
            "deleted_at",
            "latest_release_id",
            "owner_id",
            "created_at",
            "normalized_name",
            "id",
        ),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    normalized_name: Mapped[str] = mapped_column(String(100), index=True)
    visibility: Mapped[str] = mapped_column(String(10))
    description: Mapped[str] = mapped_column(Text, default="")
    project_status: Mapped[str] = mapped_column(String(20), default=ProjectStatus.ACTIVE)  # PEP 792
    status_reason: Mapped[str] = mapped_column(String(500), default="")
    latest_release_id: Mapped[str | None] = mapped_column(String(32))
    forked_from_id: Mapped[str | None] = mapped_column(String(32), index=True)  # the version that it began as
    stars: Mapped[int] = mapped_column(Integer, default=0)
    downloads: Mapped[int] = mapped_column(BigInteger, default=0)
    index_serial: Mapped[int] = mapped_column(Integer, default=0)  # raised by every change that an index page shows
    attested: Mapped[bool] = mapped_column(Boolean, default=False)  # some file has, or had, an attestation
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    owner: Mapped[Owner] = relationship(lazy="joined", innerjoin=True)
    tags: Mapped[list[EnvironmentTag]] = relationship(cascade="all, delete-orphan", order_by="EnvironmentTag.tag")


class EnvironmentTag(Base):
    """A tag of an environment's latest version."""

    __tablename__ = "environment_tags"

    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"), primary_key=True)
    tag: Mapped[str] = mapped_column(String(100), primary_key=True, index=True)


class EnvironmentText(Base):
    """What an environment is searched by beside its name; see `words.py` for the index over it."""

    __tablename__ = "environment_texts"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    environment_id: Mapped[str] = mapped_column(
        ForeignKey("environments.id", ondelete="CASCADE"), unique=True, index=True
    )
    words: Mapped[str] = mapped_column(Text)


class IndexName(Base):
    """Which environment a name means in the index of the whole hub: the first public one, for good."""

    __tablename__ = "index_names"

    normalized_name: Mapped[str] = mapped_column(String(100), primary_key=True)
    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"), index=True)


class Release(Base):
    """A version, or the draft of one.

    Drafts of the same version lie side by side, one per content hash; publishing is the moment at which at most one
    becomes the version. The partial indexes make that so even for two servers on one database.
    """

    __tablename__ = "releases"
    __table_args__ = (
        Index(
            "uq_releases_claimed_version",
            "environment_id",
            "version_key",
            unique=True,
            sqlite_where=text("claimed = 1"),
            postgresql_where=text("claimed"),
        ),
        Index(
            "uq_releases_claimed_content",
            "environment_id",
            "content_hash",
            unique=True,
            sqlite_where=text("claimed = 1"),
            postgresql_where=text("claimed"),
        ),
        UniqueConstraint("environment_id", "version_key", "content_hash", name="uq_releases_draft"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"), index=True)
    semantic_version: Mapped[str] = mapped_column(String(100))
    version_key: Mapped[str] = mapped_column(String(100))  # 1.0, 1.0.0 and v1.0 are one version
    content_hash: Mapped[str] = mapped_column(String(128))
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    runtime_hint: Mapped[str | None] = mapped_column(String(50))
    wheel_only: Mapped[bool] = mapped_column(Boolean, default=False)
    claimed: Mapped[bool] = mapped_column(Boolean, default=False)  # published once: stays so after a deletion
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    published_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    yanked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    yanked_reason: Mapped[str] = mapped_column(String(500), default="")

    environment: Mapped[Environment] = relationship()
    files: Mapped[list[ReleaseFile]] = relationship(order_by="ReleaseFile.created_at", back_populates="release")


class ReleaseAbout(Base):
    """What a version's wheel says of itself at length; apart from the version, since lists have no use for it.

    `url_dependencies` are the requirements that name an address in place of a version.
    """

    __tablename__ = "release_abouts"

    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id", ondelete="CASCADE"), primary_key=True)
    readme: Mapped[str] = mapped_column(Text, default="")
    readme_type: Mapped[str] = mapped_column(String(100), default="")
    url_dependencies: Mapped[list[str]] = mapped_column(JSON, default=list)


class Star(Base):
    """Somebody's mark on an environment; their number stands with the environment."""

    __tablename__ = "stars"

    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True, index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class DownloadCount(Base):
    """How often a file was downloaded on one day (UTC); their sum stands with the environment."""

    __tablename__ = "download_counts"

    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"), primary_key=True)
    filename: Mapped[str] = mapped_column(String(255), primary_key=True)
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger, default=0)


class ReleaseFile(Base):
    """A wheel or a source archive. `stored`: all its bytes are there; `verified`: and they are what they claim."""

    __tablename__ = "release_files"
    __table_args__ = (UniqueConstraint("release_id", "filename", "sha256", name="uq_release_files_bytes"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"), index=True)
    kind: Mapped[str] = mapped_column(String(10))
    filename: Mapped[str] = mapped_column(String(255))
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    size: Mapped[int] = mapped_column(BigInteger, default=0)  # 0 while unknown: a source archive announces none
    state: Mapped[str] = mapped_column(String(10), default="pending")
    metadata_sha256: Mapped[str | None] = mapped_column(String(64))
    requires_python: Mapped[str | None] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)

    release: Mapped[Release] = relationship(back_populates="files")
