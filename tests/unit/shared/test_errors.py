"""Errors as they travel."""

import pytest

from octavo import errors


@pytest.mark.parametrize("kind", [errors.InternalError, errors.InvalidInput, errors.TooLong, errors.Busy])
def test_an_error_that_travelled_has_its_own_class_again(kind):
    sent = kind("what was wrong", param="field", retry_after_s=2.0)
    got = errors.from_detail(sent.detail())
    assert type(got) is kind
    assert got.detail() == sent.detail()


def test_an_error_of_an_unknown_code_is_internal():
    assert type(errors.from_detail(errors.ErrorDetail("later_invented", "x"))) is errors.InternalError
