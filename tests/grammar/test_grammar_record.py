"""`@record` classes behave like attrs classes in everything that this project uses. attrs and cattrs accept them as
attrs classes.
"""

from __future__ import annotations

import attrs
import pytest
from cattrs import structure, unstructure

from xpc.grammar.record import entity, evolve, field, mutable, record, stated


@record
class Point:
    """A record with two numbers and a list of names. Each new point gets a new empty list."""

    x: int
    y: int = 0
    names: list[str] = field(factory=list, repr=False)


@record
class Place(Point):
    """A subclass of `Point` with another field."""

    label: str = field(default="", kw_only=True)


@entity
class Thing:
    """A record compared by identity: two records with equal fields are not equal."""

    x: int


@mutable
class Counter:
    """A mutable class with a number."""

    count: int = 0


def test_a_record_is_a_frozen_value():
    assert Point(1, 2) == Point(1, y=2) != Point(1, 3)
    assert hash(Thing(1)) != hash(Thing(1))
    assert {Place(1, 2, (), label="a"): "a"}[Place(1, 2, (), label="a")] == "a"
    assert Point(1) != Place(1)
    assert repr(Place(1, label="a")) == "Place(x=1, y=0, label='a')"
    for one in (Point(1), Thing(1)):
        with pytest.raises(AttributeError, match="frozen"):
            one.x = 2
        with pytest.raises(AttributeError, match="frozen"):
            del one.x
    counter = Counter()
    counter.count += 1
    assert counter.count == 1
    assert counter != Counter(1)


def test_each_instance_has_its_own_default_where_it_is_made():
    first, second = Point(1), Point(1)
    first.names.append("a")
    assert second.names == []
    assert Point(1, names=None).names is None


def test_a_field_may_have_any_name():
    @record
    class Message:
        held: int
        scope: int = 1
        make_held: list[int] = field(factory=list)

    assert Message(0, make_held=[2]) == Message(held=0, scope=1, make_held=[2])


@pytest.mark.parametrize("made", [lambda: Point(), lambda: Point(1, z=2), lambda: Place(1, 2, [], "a")])
def test_a_constructor_takes_its_fields_alone(made):
    with pytest.raises(TypeError):
        made()


def test_copy_differs_in_the_stated_fields():
    before = Place(1, label="a")
    assert evolve(before, y=3) == Place(1, 3, before.names, label="a")
    assert before.y == 0
    with pytest.raises(TypeError, match="z"):
        evolve(before, z=1)
    assert stated(before) == {"x": 1, "label": "a"}


def test_attrs_and_cattrs_read_it():
    assert [one.name for one in attrs.fields(Place)] == ["x", "y", "names", "label"]
    assert attrs.has(Counter)
    assert attrs.fields(Point).y.default == 0
    assert attrs.asdict(Place(1, label="a")) == {"x": 1, "y": 0, "names": [], "label": "a"}
    assert attrs.evolve(Point(1), y=2) == Point(1, 2)
    plain = unstructure(Place(1, 2, ["a"], label="b"))
    assert plain == {"x": 1, "y": 2, "names": ["a"], "label": "b"}
    assert structure(plain, Place) == Place(1, 2, ["a"], label="b")
    assert structure({"x": "1"}, Point) == Point(1)
