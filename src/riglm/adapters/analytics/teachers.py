"""Who taught a learned pair whose session is purged: hashes that reveal only what erasure needs."""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, FromClause, and_, delete, exists, false, not_, or_, select

from riglm.adapters.analytics.lookups import insert_into
from riglm.adapters.analytics.tables import learned_pair, lesson, session, teacher
from riglm.domain.forgetting import Forgotten, Whose
from riglm.domain.learning import Teacher


def keep_teachers(connection: Connection, sessions: Sequence[UUID], names: Callable[[str], str]) -> None:
    """Put whose these sessions are in the place of what they taught; `names` hashes the name of a client."""
    known = select(lesson.c.pair_id, session.c.client_id, session.c.client_name, session.c.principal).join_from(
        lesson, session, lesson.c.session_id == session.c.id
    )
    found = connection.execute(known.where(lesson.c.session_id.in_(sessions)).distinct()).all()
    note_teachers(
        connection,
        {
            (pair, Teacher(client_id=client, client_name=names(name), principal=principal))
            for pair, client, name, principal in found
        },
    )
    connection.execute(delete(lesson).where(lesson.c.session_id.in_(sessions)))


def note_teachers(connection: Connection, taught: Iterable[tuple[UUID, Teacher]]) -> None:
    """Note who taught which pairs, in sessions that are not there any more."""
    columns = [column.name for column in teacher.c]
    found = sorted((pair, by.client_id, by.client_name, by.principal) for pair, by in taught)
    if found:
        kept = [dict(zip(columns, row, strict=True)) for row in found]
        connection.execute(insert_into(connection, teacher).on_conflict_do_nothing(), kept)


def taught_only_by(connection: Connection, whom: Forgotten) -> Sequence[UUID]:
    """The learned pairs of which nothing is known but that this client or principal taught them."""
    other = teacher.alias()
    by_another = exists().where(and_(other.c.pair_id == teacher.c.pair_id, not_(_is(other, whom))))
    lately = exists().where(lesson.c.pair_id == teacher.c.pair_id)
    there = exists().where(learned_pair.c.id == teacher.c.pair_id)
    query = select(teacher.c.pair_id).where(_is(teacher, whom), ~by_another, ~lately, there).distinct()
    return connection.execute(query).scalars().all()


def forget_teacher(connection: Connection, whom: Forgotten) -> None:
    """Keep nowhere that this client or principal taught anything."""
    connection.execute(delete(teacher).where(_is(teacher, whom)))


def _is(kept: FromClause, whom: Forgotten) -> ColumnElement[bool]:
    """Of a row: this client or principal."""
    match whom.whose:
        case Whose.PRINCIPAL:
            return kept.c.principal == whom.key
        case Whose.CLIENT:
            return or_(kept.c.client_id == whom.key, kept.c.client_name == whom.key)
    return false()
