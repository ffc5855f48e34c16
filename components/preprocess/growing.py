"""A vocabulary that grows from day to day: what stood in it keeps its ids, tokens that are frequent now get new ones at the end."""

from collections.abc import Sequence
from dataclasses import replace

from components.errors import InvalidConfig
from components.preprocess.tokens import TokenCounts
from components.preprocess.transform import CategoryField, Transform
from components.preprocess.transform_file import encoding_digest
from components.transforms import OlderVersion


def check_growth(transform: Transform, grow_to: int, place: str) -> None:
    """Refuse what cannot grow.

    Raises:
        InvalidConfig: no column has a vocabulary, or the table is larger already.
    """
    if all(field.vocabulary is None for field in transform.categories):
        raise InvalidConfig(f"{place}: no column of it has a vocabulary that could grow; leave --grow-to out")
    if grow_to < transform.feature_size:
        raise InvalidConfig(f"grow_to {grow_to}: {place} has {transform.feature_size} ids already; raise it, or leave it out")


def grown(transform: Transform, tokens: Sequence[TokenCounts], min_count: int, grow_to: int) -> Transform:
    """The transform with ids for the tokens that it did not know and that stand `min_count` times.

    Where the table has no room for all of them, the most frequent ones of all columns get it, ties by column and token.

    Args:
        tokens: of training rows, a column each. grow_to: the largest feature_size.
    """
    found = [
        (count, column, token)
        for column, (field, counted) in enumerate(zip(transform.categories, tokens, strict=True))
        for token, count in _new_tokens(field, counted, min_count)
    ]
    chosen = sorted(found, key=lambda one: (-one[0], *one[1:]))[: grow_to - transform.feature_size]
    if not chosen:
        return transform
    first = transform.feature_size
    ids: list[list[tuple[bytes, int]]] = [[] for _ in transform.categories]
    for place, (_, column, token) in enumerate(sorted(chosen, key=lambda one: (one[1], -one[0], one[2]))):
        ids[column].append((token, first + place))
    older = OlderVersion(encodes=encoding_digest(transform), feature_size=first)
    return replace(
        transform,
        categories=tuple(_with(field, new) for field, new in zip(transform.categories, ids, strict=True)),
        feature_size=first + len(chosen),
        older=(*transform.older, older),
    )


def _new_tokens(field: CategoryField, counted: TokenCounts, min_count: int) -> list[tuple[bytes, int]]:
    """Tokens that are frequent and not known, and how often each stands there."""
    known = field.known
    pairs = zip(counted.tokens.to_pylist(), counted.counts.tolist(), strict=True)
    return [(token, count) for token, count in pairs if count >= min_count and token not in known]


def _with(field: CategoryField, new: Sequence[tuple[bytes, int]]) -> CategoryField:
    return replace(
        field,
        grown=(*field.grown, *(token.decode(errors="surrogateescape") for token, _ in new)),
        grown_ids=(*field.grown_ids, *(number for _, number in new)),
    )
