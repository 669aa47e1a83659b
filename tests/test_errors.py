"""One tree of errors, whose branches tell what may be tried again."""

import inspect

import pytest

from shared import errors


def test_every_exception_of_the_package_is_caught_as_a_meanwhile_error() -> None:
    found = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__]
    assert len(found) > 10
    assert [cls for cls in found if not issubclass(cls, errors.MeanwhileError)] == []


def test_a_value_too_large_is_not_taken_for_an_outage_that_passes() -> None:
    assert not issubclass(errors.StoreTooLarge, errors.StoreUnavailable)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.BadRequest, 400),
        (errors.Forbidden, 403),
        (errors.NotFound, 404),
        (errors.Conflict, 409),
        (errors.ContentTooLarge, 413),
        (errors.Problem, 500),
        (errors.Unavailable, 503),
    ],
)
def test_a_problem_has_its_status_a_title_and_the_field_at_fault(kind: type[errors.Problem], status: int) -> None:
    problem = kind("it is wrong", field="name")
    assert (problem.status, problem.detail, problem.field) == (status, "it is wrong", "name")
    assert problem.title


def test_a_record_of_a_later_version_is_told_from_junk() -> None:
    assert errors.RecordError("from the future", newer=True).newer
    assert not errors.RecordError("junk").newer
